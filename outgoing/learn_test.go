package outgoing_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// Another client has used most of the quota. The first response says so, and the API never has to refuse.
func TestTheUsageOfOthersIsLearntFromTheFirstResponse(t *testing.T) {
	for name, bare := range map[string]bool{"with the limit": false, "what is left alone": true} {
		bubble(t, name, func(t *testing.T) {
			up := &strict{units: 100, window: time.Minute, fields: true}
			rt := newTransport(t, newStore(), func(w http.ResponseWriter, req *http.Request) {
				up.ServeHTTP(w, req)
				if bare {
					w.Header().Del("RateLimit-Policy")
				}
			}, outgoing.Options{Refuse: true}, sash.PerMinute(100))
			up.foreign(90)
			if n := burst(t, rt); up.tooFew != 0 || n != 10 {
				t.Errorf("%d calls were sent of 10 that were left, and the API refused %d", n, up.tooFew)
			}
		})
	}
}

// Responses of calls in flight together count each other. That is not the usage of other clients.
func TestOwnCallsInFlightAreNotTakenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &strict{units: 100, window: time.Minute, fields: true}
		arrive := make(chan struct{})
		rt := newTransport(t, newStore(), func(w http.ResponseWriter, req *http.Request) {
			<-arrive
			up.ServeHTTP(w, req)
		}, outgoing.Options{Refuse: true}, sash.PerMinute(100))
		for range 4 {
			var group sync.WaitGroup
			for range 25 {
				group.Go(func() { sent(t, rt) })
			}
			synctest.Wait() // all are charged, none is answered
			for range 25 {
				arrive <- struct{}{}
			}
			group.Wait()
		}
		if up.served != 100 || up.tooFew != 0 {
			t.Errorf("%d served and %d refused of 100", up.served, up.tooFew)
		}
	})
}

func TestALevelRisesOverOneWindowAndNeverAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 4 // after the call
		rt := newTransport(t, newStore(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(left))
			left = 1_000_000 // from then on the API says that there is plenty
		}, outgoing.Options{Refuse: true}, sash.PerMinute(60))
		if n := burst(t, rt); n != 5 {
			t.Errorf("%d calls; the first answer said 4 more", n)
		}
		time.Sleep(30 * time.Second)
		if n := burst(t, rt); n != 30 {
			t.Errorf("%d more half a window later, want 30", n)
		}
		time.Sleep(2 * time.Minute)
		if n := burst(t, rt); n != 60 {
			t.Errorf("%d when all is forgotten, want the 60 that were configured", n)
		}
	})
}

func TestWaitersReturnAfterTheCoolDownAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		first := newTransport(t, store, answer(429, "Retry-After: 100"), outgoing.Options{}, sash.PerHour(5000))
		sent(t, first)
		start, took := time.Now(), make(chan time.Duration)
		for range 20 {
			rt := newTransport(t, store, answer(200), outgoing.Options{}, sash.PerHour(5000))
			go func() {
				sent(t, rt)
				took <- time.Since(start)
			}()
		}
		different := map[time.Duration]bool{}
		for range 20 {
			d := <-took
			if different[d] = true; d < 100*time.Second || d > 110*time.Second {
				t.Errorf("one came back after %v", d)
			}
		}
		if len(different) < 10 {
			t.Errorf("20 workers came back at %d different times", len(different))
		}
	})
}

func TestARequestAboveWhatTheAPIHasLeftIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := int64(1)
		route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "api", Cost: cost}, nil }
		rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Refuse: true, Base: handled(answer(200, "X-RateLimit-Remaining: 39"))}, sash.PerMinute(120))
		ok(t, rt)
		cost = 100
		if d := coolDown(t, rt); d != 30*time.Second { // from 40 to 100, at 2 a second
			t.Errorf("it could be sent in %v", d)
		}
	})
}

// A store that answers for another, which is down, has not counted the usage of all processes. The transport
// learns nothing from the difference to the API's count, and takes no cool-down from it.
func TestNothingIsLearntFromAStoreThatDidNotCount(t *testing.T) {
	for name, mode := range map[string]failover.Mode{"open": failover.Open, "local": failover.Local} {
		bubble(t, name, func(t *testing.T) {
			down := downStore()
			store, err := failover.New(down, &failover.Options{
				Modes: failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
				Local: memstore.New(nil), Instances: func() int { return 2 },
			})
			if err != nil {
				t.Fatal(err)
			}
			api := &scripted{answers: []http.HandlerFunc{answer(200)}}
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Refuse: true}, sash.PerDay(5000))
			calls := func(says http.HandlerFunc) {
				api.answers[0] = says
				for range 20 {
					sent(t, rt)
				}
			}
			calls(answer(200, "X-RateLimit-Remaining: 3"))
			down.Fail(nil)
			time.Sleep(time.Minute) // until the store is probed
			calls(answer(200))
			down.Fail(errDown)
			refusing := newTransport(t, store, answer(429, "Retry-After: 30"), outgoing.Options{Refuse: true}, sash.PerHour(5000))
			sent(t, refusing)
			if d := coolDown(t, refusing); d != 30*time.Second {
				t.Errorf("a process keeps to its own cool-down without the store: %v", d)
			}
		})
	}
}
