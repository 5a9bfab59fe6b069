package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
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
			bubble(t, name+"/"+budget.String(), func(t *testing.T) {
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

func TestAProbeWaitsForAStoreThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{})
		inner.becomes(stall(100 * time.Millisecond))
		if err := store.Probe(t.Context()); err != nil || store.State() != failover.Up {
			t.Errorf("the store is %v: %v", store.State(), err)
		}
	})
}

// A probe charges nothing and asks no part that a call has reached since the last one.
func TestAProbeAsksTheIdlePartsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{divided: &divided{Store: memstore.New(nil)}}
		store := guarded(t, inner, failover.Options{Parts: 3, Part: func(key string, _ *driver.Policy) int { return int(key[len(key)-1]) }})
		l := newLimiter(t, store, nil, sash.PerHour(10))
		expect := func(when string, want int) {
			t.Helper()
			if err := store.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if inner.calls != want {
				t.Errorf("%s: %d calls, want %d", when, inner.calls, want)
			}
			inner.calls = 0
		}
		expect("at first", 3)
		expect("nobody called", 3)
		allow(t, l, "a", 1)
		expect("one part was called, and that call counts here", 3)
		expect("nobody called again", 3)
	})
}

// A counted store counts the calls that it gets.
type counted struct {
	*divided
	calls int // guarded by mu
}

func (s *counted) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	return s.divided.Decide(ctx, req)
}

func TestAProbeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, failover.Options{Blip: time.Hour})
		inner.becomes(stalls)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := store.Probe(ctx); err == nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
