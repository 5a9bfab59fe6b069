package outgoing_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// Requests that find room start at once. Those that wait because the window is full start as far apart as a request takes,
// 50 ms as a power of two, and none more than half as far as evenly.
func TestRequestsThatWaitStartApart(t *testing.T) {
	for name, c := range map[string]struct {
		takes, apart time.Duration
	}{
		"a way":            {50 * time.Millisecond, 64 * time.Millisecond},
		"a long way":       {500 * time.Millisecond, 100 * time.Millisecond},
		"next to the API":  {100 * time.Microsecond, 0},
		"a millisecond":    {time.Millisecond, time.Millisecond},
		"under two of ms":  {1100 * time.Microsecond, 2 * time.Millisecond},
		"as long as apart": {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &strict{units: 1 << 30, window: time.Hour}
			rt := newTransport(t, newStore(), func(w http.ResponseWriter, req *http.Request) {
				api.ServeHTTP(w, req)
				time.Sleep(c.takes)
			}, outgoing.Options{}, sash.Every(25, 5*time.Second))
			began := time.Now()
			var group sync.WaitGroup
			for i := range 3 * 25 {
				if i == 25 {
					time.Sleep(time.Second) // until the first have been answered
				}
				group.Go(func() { ok(t, rt) })
				synctest.Wait()
			}
			group.Wait()
			for i, at := range api.arrivals {
				at, full := at.Sub(began).Round(time.Microsecond), time.Duration(i/25)*5*time.Second
				if i < 25 && at != 0 {
					t.Errorf("%s: request %d has room, and started after %v", name, i, at)
				}
				// The first that waits does not know yet that others do.
				if want := full + time.Duration(max(i%25, 0))*c.apart; i >= 25 && i < 50 && (at < want || at > want+c.apart) {
					t.Errorf("%s: request %d started after %v, want %v", name, i, at, want)
				}
			}
			if last := api.arrivals[74].Sub(began); last > 10*time.Second+25*c.apart+time.Millisecond {
				t.Errorf("%s: the last of 75 started after %v", name, last)
			}
		})
	}
}
