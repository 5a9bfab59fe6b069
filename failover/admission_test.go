package failover_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// serial makes a store that answers one call after the other, a while after it is asked, so that calls queue there.
func serial(each, away time.Duration) func(context.Context) error {
	var mu sync.Mutex
	var free time.Time
	return func(context.Context) error {
		mu.Lock()
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		free = free.Add(each)
		end := free.Add(away)
		mu.Unlock()
		time.Sleep(time.Until(end))
		return nil
	}
}

// A client with very many calls takes from another one neither its answers nor its time, and has the rest of the store. No
// failure mode answers while the store does, though the calls under way would queue there for longer than the budget.
func TestAGreedyClientTakesNothingFromOthers(t *testing.T) {
	for name, c := range map[string]struct {
		each, away time.Duration
		callers    int // of the greedy client
		within     time.Duration
	}{
		"a fast store":      {50 * time.Microsecond, 300 * time.Microsecond, 1500, 20 * time.Millisecond},
		"a store on an end": {time.Millisecond, 300 * time.Microsecond, 256, 50 * time.Millisecond},
		"a slow store":      {2 * time.Millisecond, 0, 200, 80 * time.Millisecond},
		"a far store":       {50 * time.Microsecond, 20 * time.Millisecond, 1500, 80 * time.Millisecond},
		"a farther store":   {50 * time.Microsecond, 40 * time.Millisecond, 1500, 120 * time.Millisecond},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerHour(90_000))
			inner.becomes(serial(c.each, c.away))
			const lasts = 3 * time.Second
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			var greedy, others atomic.Int64
			var group sync.WaitGroup
			for range c.callers {
				group.Go(func() {
					for mine := failover.WithClient(context.WithoutCancel(ctx), "greedy"); ctx.Err() == nil; {
						switch res, err := l.AllowUpTo(mine, "k", 1); {
						case err == nil && res.Source == driver.FromStore:
							greedy.Add(1)
						case !errors.Is(err, failover.ErrOverload):
							others.Add(1)
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			modest, late := 0, time.Duration(0)
			time.Sleep(time.Second)
			for ; ctx.Err() == nil; modest++ {
				began := time.Now()
				res, err := l.AllowUpTo(failover.WithClient(t.Context(), "modest"), "k", 1)
				if late = max(late, time.Since(began)); err != nil || res.Source != driver.FromStore {
					t.Errorf("the modest client: %v, %v", res.Source, err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			group.Wait()
			most := int64(lasts / c.each)
			t.Logf("%d of at most %d answers for the greedy client; the modest one waited for %v at most", greedy.Load(), most, late)
			if others.Load() > 0 || store.State() != failover.Up {
				t.Errorf("the failure mode answered %d calls; the store is %v", others.Load(), store.State())
			}
			if late > c.within || greedy.Load() < most*8/10 && c.away < time.Millisecond {
				t.Errorf("the modest client waited for %v, want %v at most; the greedy one had %d of %d answers", late, c.within, greedy.Load(), most)
			}
		})
	}
}

// A store that answered at once, and is far away from now on, is as one that was far away before.
func TestAStoreThatBecomesFarHasItsCallsAgain(t *testing.T) {
	for _, away := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		failover.Bubble(t, away.String(), func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerHour(10_000_000))
			inner.becomes(serial(50*time.Microsecond, 300*time.Microsecond))
			const callers = 100
			ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
			defer stop()
			var last atomic.Int64
			var group sync.WaitGroup
			began := time.Now()
			for range callers {
				group.Go(func() {
					for ctx.Err() == nil {
						res, err := l.Allow(t.Context(), "k")
						if err != nil || res.Source != driver.FromStore {
							t.Errorf("after %v: %v, %v", time.Since(began), res.Source, err)
							return
						}
						if time.Since(began) > 4*time.Second {
							last.Add(1)
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			time.Sleep(time.Second)
			inner.becomes(serial(50*time.Microsecond, away))
			group.Wait()
			if want := int64(callers * 2 * time.Second / (100*time.Millisecond + away)); last.Load() < want*8/10 || store.State() != failover.Up {
				t.Errorf("%d answers in the last 2 s, want %d; the store is %v", last.Load(), want, store.State())
			}
		})
	}
}

// What waits for longer than a second in this process is refused: no failure mode answers it, nothing is charged, and the
// store stays up. All others are answered by the store.
func TestOverloadIsNoFailureOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{
			Modes: always(failover.Open), OnError: func(err error, _ failover.Kind) { t.Error("reported:", err) },
		}, sash.PerHour(90_000))
		inner.becomes(serial(time.Millisecond, 0))
		var decided, overload atomic.Int64
		var group sync.WaitGroup
		for range 3000 {
			group.Go(func() {
				began := time.Now()
				res, err := l.Allow(t.Context(), "k")
				switch {
				case err == nil && res.Source == driver.FromStore:
					decided.Add(1)
				case errors.Is(err, failover.ErrOverload) && errors.Is(err, sash.ErrUnavailable) && !errors.Is(err, failover.ErrBudget):
					overload.Add(1)
				default:
					t.Errorf("%v, %v", res.Source, err)
				}
				if took := time.Since(began); took > 1100*time.Millisecond {
					t.Errorf("an answer after %v", took)
				}
			})
		}
		group.Wait()
		calls, _ := inner.seen()
		if int64(calls) != decided.Load() || decided.Load() < 900 || decided.Load()+overload.Load() != 3000 || store.State() != failover.Up {
			t.Errorf("%d decided and %d refused, with %d calls of the store, which is %v", decided.Load(), overload.Load(), calls, store.State())
		}
	})
}

// What the breaker counts is a closed list. Another error is about its call: it is answered by the failure mode, and other
// callers keep the store.
func TestOnlyErrorsOfTheStoreTakeItDown(t *testing.T) {
	for _, c := range []struct {
		err  error
		down bool
	}{
		{errors.New("the script does not know what to do with this call"), false},
		{fmt.Errorf("reading: %w", io.EOF), true}, {syscall.ECONNRESET, true}, {net.ErrClosed, true}, {os.ErrDeadlineExceeded, true},
		{errRefused, true}, {context.DeadlineExceeded, true}, {context.Canceled, true}, {&sash.StoreError{Err: errors.New("closed")}, true},
	} {
		failover.Bubble(t, c.err.Error(), func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerHour(10))
			inner.becomes(fails(c.err))
			for range 50 {
				if res := allow(t, l, "k", 1); res.Source != driver.FromPolicy {
					t.Errorf("from %v", res.Source)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if down := store.State() == failover.Down; down != c.down {
				t.Errorf("the store is %v", store.State())
			}
		})
	}
}

// More calls than may be under way wait for their turn, whatever parts they are for: no failure mode answers them while every part does.
func TestManyPartsShareThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		inner.becomes(func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
		store := guarded(t, inner, failover.Options{
			Modes: always(failover.Open), MaxInFlight: 64, Parts: 32,
			Part: func(key string, _ *driver.Policy) int { n, _ := strconv.Atoi(key); return n % 32 },
		})
		l := newLimiter(t, store, nil, sash.PerHour(90_000))
		var group sync.WaitGroup
		for i := range 640 {
			group.Go(func() {
				if res, err := l.Allow(t.Context(), strconv.Itoa(i)); err != nil || res.Source != driver.FromStore {
					t.Errorf("from %v because of %v: %v", res.Source, res.Cause, err)
				}
			})
		}
		group.Wait()
		if _, most := inner.seen(); most > 64 || store.State() != failover.Up {
			t.Errorf("%d calls were under way; the store is %v", most, store.State())
		}
	})
}
