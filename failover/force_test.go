package failover_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A store that is forced down gets no call, until that is lifted or over.
func TestForcedDown(t *testing.T) {
	for name, lift := range map[string]bool{"until it is lifted": true, "for a minute": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFake()
				store := guarded(t, inner, failover.Options{Modes: always(failover.Open)})
				l := newLimiter(t, store, nil, sash.PerHour(1000))
				var until time.Time
				if !lift {
					until = time.Now().Add(time.Minute)
				}
				if err := store.Force(failover.Down, until); err != nil {
					t.Fatal(err)
				}
				for range 59 {
					if res := allow(t, l, "k", 1); res.Source != driver.FromPolicy || !errors.Is(res.Cause, failover.ErrDown) {
						t.Fatalf("%+v", res)
					}
					if err := store.Probe(t.Context()); !errors.Is(err, failover.ErrDown) {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				forced, ok := store.Forced()
				if calls, _ := inner.seen(); calls != 0 || store.State() != failover.Down || !ok || !forced.Until.Equal(until) {
					t.Errorf("it got %d calls and is %v; %+v", calls, store.State(), forced)
				}
				if lift {
					store.Lift()
				}
				time.Sleep(time.Second)
				if _, ok := store.Forced(); ok || store.State() != failover.Up || allow(t, l, "k", 1).Source != driver.FromStore {
					t.Errorf("it is %v, and forced: %v", store.State(), ok)
				}
			})
		})
	}
}

// changes returns an OnChange that writes the states down.
func changes() (onChange func(failover.State, error), seen func() []failover.State) {
	var mu sync.Mutex
	var all []failover.State
	onChange = func(now failover.State, _ error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, now)
	}
	return onChange, func() []failover.State {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// A store that is forced up gets every call, also if it fails. Its failures do not count, an answer brings it up, and
// OnChange never says that it is down.
func TestForcedUp(t *testing.T) {
	for name, down := range map[string]bool{"it was up": false, "it was down": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFake()
				onChange, seen := changes()
				store := guarded(t, inner, failover.Options{Modes: always(failover.Open), OnChange: onChange})
				l := newLimiter(t, store, nil, sash.PerHour(1000))
				without, want := failover.Up, []failover.State(nil)
				if down {
					bringDown(t, inner, store)
					without, want = failover.Down, []failover.State{failover.Down}
				}
				force(t, store, failover.Up)
				inner.becomes(fails(errRefused))
				for range 100 {
					allow(t, l, "k", 1)
					time.Sleep(10 * time.Millisecond)
				}
				if calls, _ := inner.seen(); calls != 100 || store.State() != failover.Up || !slices.Equal(seen(), want) {
					t.Errorf("it got %d of 100 calls and is %v; changes: %v", calls, store.State(), seen())
				}
				store.Lift()
				if store.State() != without {
					t.Errorf("without the force it is %v", store.State())
				}
				force(t, store, failover.Up)
				inner.becomes(nil)
				allow(t, l, "k", 1)
				if down {
					want = append(want, failover.Up)
				}
				if store.Lift(); store.State() != failover.Up || !slices.Equal(seen(), want) {
					t.Errorf("after an answer it is %v; changes: %v", store.State(), seen())
				}
				if store.Force(failover.Probing, time.Time{}) == nil {
					t.Error("it is forced to be probing")
				}
			})
		})
	}
}

func force(t *testing.T, store *failover.Store, state failover.State) {
	t.Helper()
	if err := store.Force(state, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if f, ok := store.Forced(); !ok || f.State != state || !f.Since.Equal(time.Now()) {
		t.Errorf("forced: %+v, %v", f, ok)
	}
}

// What calls find out that were under way when a state was forced does not change it.
func TestCallsUnderWayDoNotOverruleForce(t *testing.T) {
	for name, c := range map[string]struct {
		forced failover.State
		down   bool                        // before
		does   func(context.Context) error // to the calls under way
		lifted failover.State
	}{
		"calls fail when it is forced up":          {failover.Up, false, stalls, failover.Up},
		"the probe answers when it is forced down": {failover.Down, true, hangs(time.Second), failover.Down},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newFake()
				onChange, seen := changes()
				store := guarded(t, inner, failover.Options{Budget: 2 * time.Second, Modes: always(failover.Open), OnChange: onChange})
				l := newLimiter(t, store, nil, sash.PerHour(1000))
				if c.down {
					bringDown(t, inner, store)
					time.Sleep(5 * time.Second)
				}
				inner.becomes(c.does)
				var calls traffic
				for range 10 {
					calls.call(t, l)
					time.Sleep(50 * time.Millisecond)
				}
				force(t, store, c.forced)
				before := seen()
				calls.group.Wait()
				time.Sleep(time.Minute)
				if after := seen(); !slices.Equal(before, after) || store.State() != c.forced {
					t.Errorf("it is %v; changes: %v, then %v", store.State(), before, after)
				}
				if store.Lift(); store.State() != c.lifted {
					t.Errorf("without the force it is %v", store.State())
				}
				inner.becomes(nil)
				if allow(t, l, "k", 1).Source != driver.FromStore || store.State() != failover.Up {
					t.Errorf("a store that works is %v", store.State())
				}
			})
		})
	}
}

// Of several parts that were down and are forced up, the last that answers brings the store back.
func TestPartsThatAreForcedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &divided{Store: memstore.New(nil)}
		onChange, seen := changes()
		store := guarded(t, inner, failover.Options{Modes: always(failover.Open), OnChange: onChange, Parts: 3, Part: partOf})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		inner.fail("ab")
		for range 5 {
			allow(t, l, "a", 1)
			allow(t, l, "b", 1)
			time.Sleep(failover.DefaultBlip / 4)
		}
		force(t, store, failover.Up)
		inner.fail("")
		before := len(seen())
		allow(t, l, "a", 1)
		if len(seen()) != before || store.State() != failover.Up {
			t.Errorf("one part answered: %v, and it is %v", seen(), store.State())
		}
		allow(t, l, "b", 1)
		store.Lift()
		if after := seen()[before:]; !slices.Equal(after, []failover.State{failover.Up}) || store.State() != failover.Up {
			t.Errorf("both parts answered: %v, and it is %v", after, store.State())
		}
	})
}
