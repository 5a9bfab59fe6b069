package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
)

// Limiters of one key with other limits are owed each its own: what one of them admitted is not written under the
// limits of another, which would forget it sooner or count it for less.
func TestEachLimiterOfAKeyIsOwedItsOwn(t *testing.T) {
	short, hour, more := sash.Every(5, time.Second), sash.PerHour(50), sash.PerHour(100)
	for _, a := range sash.Algorithms() {
		for _, order := range [][]sash.Limit{{hour, short}, {short, hour}, {short, hour, short}, {hour, more}, {more, hour}} {
			failover.Bubble(t, fmt.Sprint(a, order), func(t *testing.T) {
				inner := newFake()
				store := guarded(t, inner, failover.Options{Modes: always(failover.Local)})
				bringDown(t, inner, store)
				for _, limit := range order { // a policy of its own for each call, as services make them
					r, err := newLimiter(t, store, algorithm(a), limit).Reserve(t.Context(), "k", limit.Units*2/5, nil)
					if err != nil || !r.Allowed() {
						t.Fatal(r, err)
					}
					allow(t, newLimiter(t, store, algorithm(a), limit), "k", 1)
					failover.Check(t, r.Settle(t.Context(), 1))
					time.Sleep(1100 * time.Millisecond)
				}
				var here []int64
				for _, limit := range order {
					res, err := newLimiter(t, store, algorithm(a), limit).Peek(t.Context(), "k")
					if err != nil || res.Source != driver.FromLocal {
						t.Fatal(res, err)
					}
					here = append(here, res.Remaining)
				}
				bringBack(t, inner, store)
				time.Sleep(10 * time.Second)
				for i, limit := range order {
					if limit == short { // all that it admitted has left
						continue
					}
					if a.Exact() && slices.Contains(order, short) { // a log counts that here, and it is not written
						here[i] = limit.Units - 2
					}
					res, err := newLimiter(t, inner.Store, algorithm(a), limit).Peek(t.Context(), "k")
					if err != nil || res.Remaining > here[i] {
						t.Errorf("%v: %d are left in the store, want the %d that were left here: %v", limit, res.Remaining, here[i], err)
					}
				}
				if got := store.Stats(); got.Backlog != 0 || got.Lost != 0 || got.Doubtful != 0 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

func TestDecisionsDoNotWaitForTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, inFour, sash.PerHour(40))
		bringDown(t, inner, store)
		for i := range 100 {
			allow(t, l, fmt.Sprint(i), 2)
		}
		inner.becomes(hangs(10 * time.Millisecond))
		for store.State() != failover.Up {
			time.Sleep(time.Millisecond)
		}
		for range 20 {
			start := time.Now()
			res := allow(t, l, "k", 1)
			if took := time.Since(start); took != 10*time.Millisecond || res.Source != driver.FromStore {
				t.Errorf("an answer from the %v took %v", res.Source, took)
			}
		}
		if got := store.Stats(); got.Backlog == 0 || got.Written == 0 {
			t.Errorf("the backlog is not written beside decisions: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := store.Stats(); got.Backlog != 0 || got.InFlight != 0 {
			t.Errorf("%+v", got)
		}
	})
}

var (
	errKey  = errors.New("WRONGTYPE this key is something else")
	errFull = errors.New("OOM there is no memory left")
)

// What the store will not take is not offered again with every answer.
func TestPaymentsThatFailAreNotRepeatedWithEveryAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		noIDs bool // in the store
		want  failover.Stats
		tries int64 // at most, in ten seconds with a thousand answers
	}{
		"misconfigured: lost":           {errKey, false, failover.Stats{Lost: 7}, 1},
		"who knows: repeated":           {errBroken, false, failover.Stats{Written: 7}, 15},
		"who knows, no IDs: doubtful":   {errBroken, true, failover.Stats{Doubtful: 7}, 1},
		"not charged: kept":             {errFull, false, failover.Stats{Written: 7}, 15},
		"not charged, and no IDs: kept": {errFull, true, failover.Stats{Written: 7}, 15},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner := newFake()
			var wrong atomic.Bool // with payments
			var tried atomic.Int64
			wrong.Store(true)
			behind := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				if op := &b.Ops[0]; op.Kind == driver.Charge && len(b.Ops) == 1 && op.Policy.CountRefused { // as no call of this test has
					if tried.Add(1); wrong.Load() {
						return c.err
					}
				}
				return inner.Do(ctx, b)
			})
			if c.noIDs {
				behind.Without = driver.CanID
			}
			store := guarded(t, behind, failover.Options{
				Modes: always(failover.Local),
				Classify: func(err error) failover.Kind {
					switch err {
					case errKey:
						return failover.Misconfigured
					case errFull:
						return failover.Unsent
					}
					return failover.Unknown
				},
			})
			l := newLimiter(t, store, nil, sash.PerHour(40))
			inner.becomes(fails(errRefused))
			allow(t, l, "k", 7)
			inner.becomes(nil)
			for range 1000 {
				look(t, l)
				time.Sleep(10 * time.Millisecond)
			}
			if n := tried.Load(); n < 1 || n > c.tries {
				t.Errorf("a payment was tried %d times in ten seconds, want 1 to %d", n, c.tries)
			}
			wrong.Store(false)
			time.Sleep(2 * time.Second)
			look(t, l)
			synctest.Wait()
			if got := store.Stats(); got != c.want {
				t.Errorf("%+v", got)
			}
			if left := remaining(t, inner, sash.PerHour(40)); left != 40-c.want.Written {
				t.Errorf("%d of 40 are left", left)
			}
		})
	}
}

// algorithm returns options for an algorithm.
func algorithm(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Millisecond
	}
	return opts
}

// Close writes what is waiting, once and within its time, and what it cannot write is counted.
func TestCloseWritesTheBacklog(t *testing.T) {
	const keys = 200 // of 2 units each
	for name, c := range map[string]struct {
		do          func(context.Context) error // of the store when it is closed
		takes       time.Duration               // at most
		least, most int64                       // units that are written
	}{
		"the store is back":           {nil, 2 * time.Second, 2 * keys, 2 * keys},
		"the store is gone":           {fails(errRefused), 4 * time.Second, 0, 0},
		"the store hangs":             {stalls, 4*time.Second + failover.DefaultBudget, 0, 0},
		"the store ignores contexts":  {hangs(time.Minute), 4*time.Second + failover.DefaultBudget, 0, 0},
		"the store is back soon":      {backAfter(time.Second), 4 * time.Second, 2 * keys, 2 * keys},
		"the store is back, and slow": {hangs(40 * time.Millisecond), 4*time.Second + failover.DefaultBudget, 2 * 50, 2 * 100},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, inFour, sash.PerHour(40))
			inner.becomes(fails(errRefused))
			for i := range keys {
				allow(t, l, fmt.Sprint(i), 2)
			}
			time.Sleep(10 * time.Second)
			inner.becomes(c.do)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			start := time.Now()
			err := store.Close(ctx)
			if took := time.Since(start); took > c.takes {
				t.Errorf("it took %v", took)
			}
			got := store.Stats()
			if got.Written < c.least || got.Written > c.most || got.Backlog != 0 || got.Written+got.Lost+got.Doubtful != 2*keys {
				t.Errorf("%+v", got)
			}
			if (err == nil) != (got.Written == 2*keys) {
				t.Errorf("%+v, and the error is %v", got, err)
			}
			time.Sleep(2 * time.Minute) // what hangs has ended
			inner.becomes(nil)
			time.Sleep(time.Minute)
			if calls, _ := inner.seen(); calls != 0 || store.Stats().InFlight != 0 {
				t.Errorf("%d calls after the end; %+v", calls, store.Stats())
			}
		})
	}
}

// backAfter refuses connections for a while.
func backAfter(d time.Duration) func(context.Context) error {
	var first time.Time
	return func(context.Context) error {
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) < d {
			return errRefused
		}
		return nil
	}
}
