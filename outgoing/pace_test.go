package outgoing_test

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// Three processes with four workers each send as fast as they may: one request each 200 ms, and never a burst.
func TestAPacedFleetSendsEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, api := newStore(), &upstream{limit: 1 << 30, window: time.Hour, fields: silent}
		fleet(t, 3, 4, 50, func() http.RoundTripper {
			return newTransport(t, store, api.ServeHTTP, outgoing.Options{Pace: true}, sash.Every(25, 5*time.Second), sash.PerMinute(300))
		})
		for i := 1; i < len(api.arrivals); i++ {
			if d := api.arrivals[i].Sub(api.arrivals[i-1]).Round(time.Microsecond); d != 200*time.Millisecond {
				t.Errorf("request %d came %v after the one before, want 200ms", i, d)
			}
		}
	})
}

// A request starts its own cost after the one before: the rate is that of the limit whatever the costs.
func TestAPacedRequestWaitsForItsOwnCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		route := func(req *http.Request) (outgoing.Call, error) {
			cost, err := strconv.ParseInt(req.URL.Path[1:], 10, 64)
			return outgoing.Call{Key: "api", Cost: cost}, err
		}
		rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Pace: true, Spread: -1, Base: handled(answer(200))}, sash.PerMinute(600))
		start := time.Now()
		for _, c := range []struct {
			cost string
			at   time.Duration
		}{{"/1", 0}, {"/50", 5000 * time.Millisecond}, {"/1", 5100 * time.Millisecond}, {"/600", 65100 * time.Millisecond}} {
			if err := getPath(t, rt, c.cost); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start).Round(time.Microsecond); took != c.at {
				t.Errorf("the request of cost %s started after %v, want %v", c.cost[1:], took, c.at)
			}
		}
	})
}

// The pace is no limit that callers know of. A rate of more than a request a millisecond is paced by the millisecond.
func TestAPacedRefusalNamesTheLimit(t *testing.T) {
	for limit, want := range map[sash.Limit]struct {
		burst int
		retry time.Duration
	}{
		sash.Every(25, 5*time.Second): {1, 200 * time.Millisecond},
		sash.PerSecond(5000):          {5, time.Millisecond},
		sash.PerSecond(1500):          {2, 1334 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			rt := newTransport(t, newStore(), answer(200), outgoing.Options{Mode: outgoing.Refuse, Pace: true}, limit)
			for range want.burst {
				ok(t, rt)
			}
			_, err := get(t.Context(), rt)
			var limited *sash.LimitedError
			if !errors.As(err, &limited) || limited.Limit.String() != limit.String() || limited.Result.RetryAfter != want.retry {
				t.Fatalf("%v: %v", limit, err)
			}
			if all := limited.Result.Limits(); len(all) != 1 || all[0].Remaining != limit.Units-int64(want.burst) {
				t.Errorf("%v: the result has the limits %+v", limit, all)
			}
		})
	}
}

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
			api := &upstream{limit: 1 << 30, window: time.Hour, fields: silent}
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
