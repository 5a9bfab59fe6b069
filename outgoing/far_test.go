package outgoing_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

// A far store answers each request and each look for cool-downs after a while.
type far struct{ slowStore }

func (f far) CoolDown(ctx context.Context, key string, c driver.CoolDown) (driver.CoolDown, error) {
	time.Sleep(f.takes)
	return f.Passthrough.CoolDown(ctx, key, c)
}

// A process that looks for what others have learnt makes no request later than the rest. A look between a charge and its
// request does: the API refuses the next one, and the spread costs a sixth of the rate here.
func TestListeningDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 4 * time.Minute
		store := far{slowStore{driver.Passthrough{Next: newStore()}, 60 * time.Millisecond}}
		var mu sync.Mutex
		var served []time.Time
		refused := 0
		api := func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if n := len(served); n >= 10 && now.Sub(served[n-10]) < time.Second {
				refused++
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			served = append(served, now)
		}
		limits := []sash.Limit{sash.PerSecond(10), sash.PerMinute(10_000), sash.PerHour(50_000)}
		var group sync.WaitGroup
		start := time.Now()
		for range 3 {
			rt := newTransport(t, store, api, outgoing.Options{Spread: learnt}, limits...)
			for range 10 {
				group.Go(func() {
					for time.Since(start) < lasts {
						_, _ = get(t.Context(), rt)
					}
				})
			}
		}
		group.Wait()
		if most := 10 * int(lasts/time.Second); refused > 0 || len(served) < most*95/100 {
			t.Errorf("%d requests were served and %d refused, want %d to %d and none", len(served), refused, most*95/100, most)
		}
	})
}
