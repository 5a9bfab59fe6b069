package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// One call of Probe finds out what callers would have to find out, within Budget + Blip.
func TestAProbeFindsWhatNobodyAsksAbout(t *testing.T) {
	for name, c := range map[string]struct {
		does      func(context.Context) error
		want      failover.State
		in, after time.Duration // budgets, and the time besides
	}{
		"a store that works":       {nil, failover.Up, 0, 0},
		"one that is slow":         {hangs(40 * time.Millisecond), failover.Up, 0, 40 * time.Millisecond},
		"one that hangs":           {stalls, failover.Down, 1, failover.DefaultBlip},
		"one that heeds nothing":   {hangs(time.Hour), failover.Down, 1, failover.DefaultBlip},
		"one that refuses at once": {fails(errRefused), failover.Down, 0, failover.DefaultBlip},
	} {
		for _, budget := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			failover.Bubble(t, name+"/"+budget.String(), func(t *testing.T) {
				inner := newFake()
				store := guarded(t, inner, failover.Options{Budget: budget})
				inner.becomes(c.does)
				began := time.Now()
				err := store.Probe(t.Context())
				took := time.Since(began)
				if (err == nil) != (c.want == failover.Up) || err != nil && !errors.Is(err, sash.ErrUnavailable) || store.State() != c.want {
					t.Errorf("the store is %v: %v", store.State(), err)
				}
				if want := c.in*budget + c.after; took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				if _, most := inner.seen(); most > 10 { // five, and as many after those that failed
					t.Errorf("%d calls at a time", most)
				}
				inner.becomes(nil)
				time.Sleep(2 * time.Hour)
				if err := store.Probe(t.Context()); err != nil || store.State() != failover.Up {
					t.Errorf("a store that works again is %v: %v", store.State(), err)
				}
			})
		}
	}
}

// A probe charges nothing and asks no part that a call has reached since the last one.
func TestAProbeAsksTheIdlePartsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		inner := memstore.New(nil)
		counted := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
			calls.Add(1)
			return inner.Do(ctx, b)
		})
		store := guarded(t, counted, failover.Options{Parts: 3, Part: func(key string, _ *driver.Policy) int { return int(key[len(key)-1]) }})
		l := newLimiter(t, store, nil, sash.PerHour(10))
		expect := func(when string, want int64) {
			t.Helper()
			failover.Check(t, store.Probe(t.Context()))
			if n := calls.Swap(0); n != want {
				t.Errorf("%s: %d calls, want %d", when, n, want)
			}
		}
		expect("at first", 3)
		expect("nobody called", 3)
		allow(t, l, "a", 1)
		expect("one part was called, and that call counts here", 3)
		expect("nobody called again", 3)
	})
}

// A divided store has parts that fail by themselves: a subject's is its first letter, from a.
type divided struct {
	*memstore.Store

	mu   sync.Mutex
	down string // guarded by mu: the parts that fail
}

func (s *divided) fail(parts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = parts
}

func (s *divided) Do(ctx context.Context, b *driver.Batch) error {
	s.mu.Lock()
	fails := slices.Contains([]byte(s.down), b.Ops[0].Key[0])
	s.mu.Unlock()
	if fails && b.Ops[0].Kind == driver.Charge {
		return errRefused
	}
	return s.Store.Do(ctx, b)
}

func partOf(key string, _ *driver.Policy) int { return int(key[0] - 'a') }

func TestAPartThatIsDownIsNotTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &divided{Store: memstore.New(nil)}
		var changes []string
		store := guarded(t, inner, failover.Options{Parts: 3, Part: partOf, OnChange: func(now failover.State, cause error) {
			changes = append(changes, fmt.Sprint(now, " ", errors.Is(cause, errRefused)))
		}})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		inner.fail("bc")
		for range 20 {
			for _, key := range []string{"b", "c", "b2"} {
				if _, err := l.Allow(t.Context(), key); !errors.Is(err, errRefused) {
					t.Fatalf("%s: %v", key, err)
				}
			}
			if res := allow(t, l, "a", 1); res.Source != driver.FromStore {
				t.Fatalf("a subject of a part that works: %+v", res)
			}
			time.Sleep(failover.DefaultBlip / 4)
		}
		if store.State() != failover.Down {
			t.Errorf("the store is %v", store.State())
		}
		inner.fail("c")
		time.Sleep(time.Second)
		if res := allow(t, l, "b", 1); res.Source != driver.FromStore || store.State() != failover.Down {
			t.Errorf("one of two is back: %+v; the store is %v", res, store.State())
		}
		inner.fail("")
		allow(t, l, "c", 1)
		if store.State() != failover.Up {
			t.Errorf("all are back, and the store is %v", store.State())
		}
		if last := changes[len(changes)-1]; last != "up false" || slices.Index(changes, "up false") != len(changes)-1 || changes[0] != "down true" {
			t.Errorf("changes: %v", changes)
		}
		if slices.Contains(changes, "down false") || slices.Contains(changes, "probing false") {
			t.Errorf("not up, and without a cause: %v", changes)
		}
	})
}

func TestPartsThatMakeNoSense(t *testing.T) {
	if _, err := failover.New(newFake(), &failover.Options{Parts: -1}); err == nil {
		t.Error("a store with fewer than no parts")
	}
	for _, opts := range []failover.Options{{Parts: 7}, {Part: partOf}, {Parts: 1, Part: partOf}, {Parts: 2, Part: func(string, *driver.Policy) int { return -5 }}} {
		l := newLimiter(t, guarded(t, newFake(), opts), nil, sash.PerHour(10))
		allow(t, l, "zzz", 1) // is some part's
	}
}
