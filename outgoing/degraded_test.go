package outgoing_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

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
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Mode: outgoing.Refuse}, sash.PerDay(5000))
			calls := func(says http.HandlerFunc) {
				api.answers[0] = says
				for i := range 20 {
					if _, err := get(t.Context(), rt); err != nil {
						t.Fatalf("call %d: %v", i, err)
					}
				}
			}
			calls(answer(200, "X-RateLimit-Remaining: 3"))
			down.Fail(nil)
			time.Sleep(time.Minute) // until the store is probed
			calls(answer(200))
			down.Fail(errDown)
			refusing := newTransport(t, store, answer(429, "Retry-After: 30"), outgoing.Options{Mode: outgoing.Refuse}, sash.PerHour(5000))
			sent(t, refusing)
			_, err = get(t.Context(), refusing)
			var cool *outgoing.CoolDownError
			if !errors.As(err, &cool) || cool.RetryAfter != 30*time.Second {
				t.Errorf("a process keeps to its own cool-down without the store: %v", err)
			}
		})
	}
}
