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
		var group sync.WaitGroup
		for range 3 {
			rt := newTransport(t, store, api.ServeHTTP, outgoing.Options{Pace: true}, sash.Every(25, 5*time.Second), sash.PerMinute(300))
			for range 4 {
				group.Go(func() {
					for range 50 {
						if _, err := get(t.Context(), rt); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
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
		rt, err := outgoing.New(newStore(), route, &outgoing.Options{Pace: true, Spread: -1, Base: handled(answer(200))}, sash.PerMinute(600))
		if err != nil {
			t.Fatal(err)
		}
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

// With a spread the requests of a window are even over the longer window, so no silence follows them.
func TestAPacedWindowWithASpreadIsEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &upstream{limit: 1 << 30, window: time.Hour, fields: silent}
		rt := newTransport(t, newStore(), api.ServeHTTP, outgoing.Options{Pace: true, Spread: 500 * time.Millisecond}, sash.Every(25, 5*time.Second))
		for range 60 {
			ok(t, rt)
		}
		for i := 1; i < 60; i++ {
			if d := api.arrivals[i].Sub(api.arrivals[i-1]).Round(time.Microsecond); d != 220*time.Millisecond {
				t.Errorf("request %d came %v after the one before, want 220ms", i, d)
			}
		}
	})
}

func TestWhatCannotBePaced(t *testing.T) {
	day := sash.PerCalendar(100, sash.CalendarDay, nil)
	var many []sash.Limit
	for i := range sash.MaxLimits {
		many = append(many, sash.Every(int64(i+1), time.Duration(i+1)*time.Second))
	}
	for name, c := range map[string]struct {
		algorithm sash.Algorithm
		limits    []sash.Limit
	}{
		"calendar limits only":     {sash.SlidingLog, []sash.Limit{day}},
		"an approximation":         {sash.FixedWindow, []sash.Limit{sash.PerMinute(1)}},
		"as many limits as it can": {sash.SlidingLog, many},
	} {
		opts := outgoing.Options{Pace: true, Algorithm: c.algorithm, Base: handled(answer(200))}
		if _, err := outgoing.New(newStore(), outgoing.Everything("api"), &opts, c.limits...); err == nil {
			t.Errorf("%s: no error", name)
		}
		opts.Algorithm = sash.SlidingLog
		if name == "an approximation" {
			continue
		}
		route := func(*http.Request) (outgoing.Call, error) { return outgoing.Call{Key: "api", Limits: c.limits}, nil }
		rt, err := outgoing.New(newStore(), route, &opts, sash.PerMinute(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := get(t.Context(), rt); err == nil {
			t.Errorf("%s, of a call: no error", name)
		}
	}
}
