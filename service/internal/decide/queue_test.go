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

// Clients that book as fast as they can leave another one its part of a queue: one takes half of it, and a second one
// half of the rest. The other's bookings are admitted, and wait no longer than that, a window, and its own bookings.
func TestAClientTakesNoMoreThanItsShareOfAQueue(t *testing.T) {
	const length = 20 * time.Second
	for greedy := range 3 {
		synctest.Test(t, func(t *testing.T) {
			d := servertest.Decider(t, memstore.New(nil), "domain: shop\ndescriptors: [{key: user, limits: [10/1s], max_wait: 20s}]")
			book := func(client string) decide.Answer {
				req := decide.One("shop", []config.Entry{{Key: "user", Value: "42"}}, nil)
				req.Within = time.Hour
				answers, err := d.Decide(failover.WithClient(t.Context(), client), req)
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
		d := servertest.Decider(t, memstore.New(nil), "domain: shop\ndescriptors: [{key: user, limits: [10/10s], max_wait: 20s}]")
		reserve := func(id string) (decide.Answer, *decide.Reservation) {
			req := decide.One("shop", []config.Entry{{Key: "user", Value: "42"}}, new(int64(5)))
			req.Within, req.ID = time.Hour, id
			a, r, err := d.Reserve(failover.WithClient(t.Context(), "a"), req)
			if err != nil {
				t.Fatal(err)
			}
			return a, r
		}
		for i := range 2 {
			reserve(fmt.Sprint("now ", i))
		}
		var waits []*decide.Reservation
		for i := range 2 { // its share: 10 of 20 seconds
			_, r := reserve(fmt.Sprint("later ", i))
			waits = append(waits, r)
		}
		for i := range 20 {
			if a, r := reserve(""); r != nil {
				t.Fatalf("%d: beyond its share it waits %v", i, a.Delay)
			}
			for range 2 {
				servertest.Check(t, d.Settle(failover.WithClient(t.Context(), "a"), waits[i], 0))
			}
			a, r := reserve("")
			if r == nil {
				t.Fatalf("%d: in place of what was given back: %+v", i, a.RefusedBy)
			}
			waits = append(waits, r)
		}
	})
}

func TestARepeatedBookingTakesNoMoreOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := servertest.Decider(t, memstore.New(nil), "domain: shop\ndescriptors: [{key: user, limits: [10/10s], max_wait: 20s}]")
		var delay time.Duration
		for i := range 41 {
			req := decide.One("shop", []config.Entry{{Key: "user", Value: "42"}}, nil)
			req.Within, req.ID = time.Hour, "job"
			if i < 10 || i == 40 {
				req.ID = fmt.Sprint(i)
			}
			answers, err := d.Decide(t.Context(), req)
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
