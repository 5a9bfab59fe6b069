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

// A booking that is repeated with its ID is one.
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
