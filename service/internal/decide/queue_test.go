package decide_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

// queueing returns a decider whose rule lets requests wait for 20 seconds.
func queueing(t *testing.T, limit string) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), "domain: shop\ndescriptors: [{key: user, limits: ["+limit+"], max_wait: 20s}]")
}

// waits is a request that may wait, for units and perhaps with an ID.
func waits(id string, units int64) decide.Request {
	req := decide.One("shop", []config.Entry{{Key: "user", Value: "42"}}, &units)
	req.Within, req.ID = time.Hour, id
	return req
}

// Clients that book as fast as they can leave another one its part of a queue: one takes half of it, and a second one
// half of the rest. The other's bookings are admitted, and wait no longer than that, a window, and its own bookings.
func TestAClientTakesNoMoreThanItsShareOfAQueue(t *testing.T) {
	const length = 20 * time.Second
	for greedy := range 3 {
		synctest.Test(t, func(t *testing.T) {
			d := queueing(t, "10/1s")
			book := func(client string) decide.Answer {
				answers, err := d.Decide(failover.WithClient(t.Context(), client), waits("", 1))
				if err != nil {
					t.Error(err)
				}
				return answers[0]
			}
			var group sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for client := range greedy {
				for range 10 {
					group.Go(func() {
						for ctx.Err() == nil {
							if book(fmt.Sprint(client)).Refused {
								time.Sleep(20 * time.Millisecond)
							}
						}
					})
				}
			}
			var most time.Duration
			for range 40 {
				time.Sleep(time.Second)
				a := book("modest")
				if a.Refused {
					t.Errorf("%d greedy clients: %+v", greedy, a.RefusedBy)
				}
				most = max(most, a.Delay)
			}
			stop()
			group.Wait()
			t.Logf("%d greedy clients: others wait %v", greedy, most)
			if bound := length - length>>greedy + 2*time.Second; most > bound {
				t.Errorf("%d greedy clients: another one waits %v, longer than %v", greedy, most, bound)
			}
		})
	}
}

// A client may book again in place of what it has given back, as often as it likes, and has no more by settling twice.
func TestASettledBookingTakesNoPartOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := queueing(t, "10/10s")
		reserve := func(id string) (decide.Answer, *decide.Reservation) {
			a, r, err := d.Reserve(failover.WithClient(t.Context(), "a"), waits(id, 5))
			servertest.Check(t, err)
			return a, r
		}
		var held []*decide.Reservation
		for i := range 4 { // two start at once, and two are its share: 10 of 20 seconds
			_, r := reserve(fmt.Sprint(i))
			held = append(held, r)
		}
		for i := range 20 {
			if a, r := reserve(""); r != nil {
				t.Fatalf("%d: beyond its share it waits %v", i, a.Delay)
			}
			for range 2 {
				servertest.Check(t, d.Settle(failover.WithClient(t.Context(), "a"), held[i+2], 0))
			}
			a, r := reserve("")
			if r == nil {
				t.Fatalf("%d: in place of what was given back: %+v", i, a.RefusedBy)
			}
			held = append(held, r)
		}
	})
}

func TestARepeatedBookingTakesNoMoreOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := queueing(t, "10/10s")
		var delay time.Duration
		for i := range 41 {
			id := "job"
			if i < 10 || i == 40 {
				id = fmt.Sprint(i)
			}
			answers, err := d.Decide(t.Context(), waits(id, 1))
			if err != nil || answers[0].Refused {
				t.Fatalf("call %d: %+v, %v", i, answers, err)
			}
			delay = answers[0].Delay
		}
		if delay != 10*time.Second {
			t.Errorf("the twelfth booking waits %v", delay)
		}
	})
}
