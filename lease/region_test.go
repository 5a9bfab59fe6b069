package lease_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A caller below the limit waits for a trip at first, and never again.
func TestASteadyCallerNeverWaitsForATripAgain(t *testing.T) {
	for _, processes := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			home := newFar(trip / 2)
			region, _ := newRegion(t, home, processes, 3*time.Second, time.Hour, sash.PerMinute(60_000))
			waited := 0
			begin := time.Now()
			for i := range 40_000 {
				before := time.Now()
				res, err := region[i%processes].Allow(t.Context(), "k")
				if err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				}
				if took := time.Since(before); took > 0 {
					waited++
					if time.Since(begin) > 3*trip+time.Second {
						t.Errorf("%v after the beginning a call took %v", time.Since(begin), took)
					}
				}
				time.Sleep(1250 * time.Microsecond) // 800 a second, of 1000
			}
			if n := home.calls.Load(); n > 5*40 {
				t.Errorf("%d calls of the home for 40,000 decisions", n)
			}
			t.Logf("%d waited, %d calls of the home", waited, home.calls.Load())
			time.Sleep(10 * time.Second)
		})
	}
}

// Over the limit nobody asks the home until the refusal ends, and a caller that comes back then is admitted.
func TestARefusalIsKnownToTheRegion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := newFar(trip / 2)
		region, _ := newRegion(t, home, 2, 3*time.Second, 0, sash.PerMinute(1000))
		var retry time.Duration
		admitted := 0
		for i := range 2000 {
			res, err := region[i%2].Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed {
				admitted++
			} else {
				retry = res.RetryAfter
			}
			time.Sleep(time.Millisecond)
		}
		if admitted != 1000 {
			t.Errorf("%d of 1000 were admitted", admitted)
		}
		home.asked.Store(0)
		for i := range 1000 {
			if res, err := region[i%2].Allow(t.Context(), "k"); err != nil || res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			} else if res.RetryAfter > retry {
				t.Fatalf("retry after %v, and before %v", res.RetryAfter, retry)
			} else {
				retry = res.RetryAfter
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := home.asked.Load(); n > 10 {
			t.Errorf("the home was asked %d times in ten seconds", n)
		}
		t.Logf("asked %d times; retry after %v", home.asked.Load(), retry)
		time.Sleep(retry)
		if res, err := region[0].Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("after the retry time: %+v, %v", res, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// Three regions ask for twice the limit, all the time. No window has more than the limit, and what is possible is N units in a
// window longer by a lease.
func TestBusyRegionsUseTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, units, lasts = 10 * time.Second, 10_000, 63 * time.Second
		home := newFar(trip / 2)
		var mu sync.Mutex
		var all []judge.Call
		var callers sync.WaitGroup
		for i := range 3 {
			ls, _ := newRegion(t, home, 2, window/20, time.Duration(i)*time.Hour, sash.Every(units, window))
			for c := range 7 {
				callers.Go(func() {
					time.Sleep(10 * time.Millisecond * time.Duration(c) / 7)
					for begin := time.Now(); time.Since(begin) < lasts; time.Sleep(10 * time.Millisecond) {
						if res, err := ls[c%2].Allow(t.Context(), "k"); err == nil && res.Allowed {
							at := time.Now()
							if res.Source == driver.FromStore {
								at = res.At
							}
							mu.Lock()
							all = append(all, judge.Call{At: at, Cost: 1})
							mu.Unlock()
						}
					}
				})
			}
		}
		callers.Wait()
		if err := judge.CheckHistory([]sash.Limit{sash.Every(units, window)}, all); err != nil {
			t.Error(err)
		}
		full, possible := float64(len(all))/units, lasts.Seconds()/window.Seconds()
		t.Logf("%.3f windows full, %d calls home", full, home.calls.Load())
		if full < 0.93*possible {
			t.Errorf("%.3f windows full of units were admitted, of %.1f", full, possible)
		}
		time.Sleep(10 * time.Second) // leases end
	})
}

// The ocean is cut: what is held is spent, then a call fails at once and says why. Few questions go to the home, and when
// it is back, so are the leases.
func TestWhenTheOceanIsCutCallsFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := newFar(trip / 2)
		region, _ := newRegion(t, home, 2, 3*time.Second, 0, sash.PerMinute(60_000))
		call := func(i int) (sash.Result, time.Duration, error) {
			before := time.Now()
			res, err := region[i%2].Allow(t.Context(), "k")
			time.Sleep(2 * time.Millisecond)
			return res, time.Since(before) - 2*time.Millisecond, err
		}
		for i := range 2000 {
			if res, _, err := call(i); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		home.cut.Store(true)
		home.asked.Store(0)
		held, failed, slow := 0, 0, 0
		for i := range 5000 {
			res, took, err := call(i)
			switch {
			case err == nil && res.Allowed:
				held++
			case errors.Is(err, sash.ErrUnavailable):
				failed++
			default:
				t.Fatalf("%+v, %v", res, err)
			}
			if took > 0 {
				slow++
			}
		}
		t.Logf("%d from what was held, %d failed, %d waited; the home was asked %d times", held, failed, slow, home.asked.Load())
		if held < 500 || failed < 3000 || slow > 10 || home.asked.Load() > 10 {
			t.Error("see above")
		}
		home.cut.Store(false)
		time.Sleep(10 * time.Second)
		for i := range 200 {
			_, _, _ = call(i)
		}
		if res, took, err := call(0); err != nil || res.Source != driver.FromLease || took > 0 {
			t.Errorf("when the home is back: %+v, %v, %v", res, took, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// A home that is silent is asked by one call after the other, and the others fail at once: also those that no lease can
// serve, under small limits, peeks, and where leases are too short for the way.
func TestASilentHomeIsAskedByOneCallAtATime(t *testing.T) {
	for name, c := range map[string]struct {
		longest time.Duration
		limit   sash.Limit
		peeks   bool
	}{
		"leases are too short": {longest: trip, limit: sash.PerHour(10_000)},
		"the limit is small":   {longest: time.Second, limit: sash.PerHour(10)},
		"peeks":                {longest: time.Second, limit: sash.PerHour(10_000), peeks: true},
	} {
		bubble(t, name, func(t *testing.T) {
			home := newFar(trip / 2)
			store := shared(t, contextual{home, time.Second}, memstore.New(nil), c.longest, nil)
			l := newLimiter(t, store, nil, c.limit)
			call := func() (err error) {
				if c.peeks {
					_, err = l.Peek(t.Context(), "k")
				} else {
					_, err = l.Allow(t.Context(), "k")
				}
				return err
			}
			for range 3 {
				if err := call(); err != nil {
					t.Fatal(err)
				}
			}
			home.cut.Store(true)
			home.calls.Store(0)
			for range 1000 {
				go func() {
					if err := call(); !errors.Is(err, sash.ErrUnavailable) {
						t.Errorf("a call gets %v", err)
					}
				}()
				time.Sleep(10 * time.Millisecond)
			}
			if n := home.calls.Load(); n > 150 { // those of the first second, and then one after each pause
				t.Errorf("%d of 1000 calls in 10 s ask a home that is silent", n)
			}
			home.cut.Store(false)
			time.Sleep(10 * time.Second)
			if err := call(); err != nil {
				t.Errorf("the home answers again, and a call gets %v", err)
			}
		})
	}
}

// A way that was too long for leases is measured by errands meanwhile: connecting takes longer than what follows.
func TestLeasesBeginWhenTheWayIsShortEnoughAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar(45 * time.Millisecond)
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(100_000))
		fromLease := 0
		for i := range 2000 {
			if i == 5 {
				inner.way = time.Millisecond
			}
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if i >= 1000 && res.Source == driver.FromLease {
				fromLease++
			}
			time.Sleep(time.Millisecond)
		}
		if fromLease < 900 {
			t.Errorf("%d of 1000 calls were decided beside the home, long after its way became short", fromLease)
		}
	})
}

// newRegion returns limiters of so many processes that share leases, in a region whose clock is ahead by a while, and the
// store of the last one.
func newRegion(
	t testing.TB, home driver.Store, processes int, longest, ahead time.Duration, limits ...sash.Limit,
) (ls []*sash.Limiter, last *lease.Store) {
	t.Helper()
	holder := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	for range processes {
		last = shared(t, home, holder, longest, nil)
		ls = append(ls, newLimiter(t, last, nil, limits...))
	}
	return ls, last
}
