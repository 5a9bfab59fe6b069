package failover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A slowStore answers after a while.
type slowStore struct {
	*memstore.Store
	takes time.Duration
}

func (s *slowStore) Do(ctx context.Context, b *driver.Batch) error {
	select {
	case <-time.After(s.takes):
		return s.Store.Do(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// late returns a store in front of another, in a process that wakes late from each of its timers, and a limiter on it.
func late(t *testing.T, inner driver.Store, by time.Duration) (*Store, *sash.Limiter) {
	t.Helper()
	store := Must(New(inner, &Options{Modes: Modes{Rules: []Rule{{Mode: Open}}}}))(t)
	store.woke = func() { time.Sleep(by) }
	l := Must(sash.New(store, nil, sash.PerHour(1000)))(t)
	return store, l
}

func TestALateProcessWaitsForTheReplyAsMuchLonger(t *testing.T) {
	for name, c := range map[string]struct {
		takes, late time.Duration // the store's time, and how late each of five steps ends
		by          sash.Source
		after       time.Duration
	}{
		"on time":                     {49 * time.Millisecond, 0, driver.FromStore, 49 * time.Millisecond},
		"on time, too slow":           {51 * time.Millisecond, 0, driver.FromPolicy, 50 * time.Millisecond},
		"late":                        {85 * time.Millisecond, 8 * time.Millisecond, driver.FromStore, 90 * time.Millisecond},
		"late, too slow":              {95 * time.Millisecond, 8 * time.Millisecond, driver.FromPolicy, 90 * time.Millisecond},
		"very late":                   {99 * time.Millisecond, 60 * time.Millisecond, driver.FromStore, 140 * time.Millisecond},
		"very late, and a dead store": {time.Hour, 60 * time.Millisecond, driver.FromPolicy, 420 * time.Millisecond},
		"late four times over":        {240 * time.Millisecond, 40 * time.Millisecond, driver.FromStore, 250 * time.Millisecond},
		"late at the end":             {350*time.Millisecond + 1, 60 * time.Millisecond, driver.FromStore, 350*time.Millisecond + 1},
		"stopped":                     {415 * time.Millisecond, 400 * time.Millisecond, driver.FromStore, 415 * time.Millisecond},
		"stopped, and a dead store":   {time.Hour, 400 * time.Millisecond, driver.FromPolicy, 1230 * time.Millisecond},
		"the scheduler's usual delay": {52 * time.Millisecond, time.Millisecond, driver.FromPolicy, 51 * time.Millisecond},
	} {
		Bubble(t, name, func(t *testing.T) {
			_, l := late(t, &slowStore{memstore.New(nil), c.takes}, c.late)
			began := time.Now()
			res, err := l.Allow(t.Context(), "k")
			if took := time.Since(began); err != nil || res.Source != c.by || took != c.after {
				t.Errorf("from %v after %v, want %v after %v: %v", res.Source, took, c.by, c.after, err)
			}
		})
	}
}

// A process that is itself late waits longer before it takes the store to be down: until nothing was answered for five blips.
func TestALateProcessIsSlowToTakeTheStoreDown(t *testing.T) {
	for name, c := range map[string]struct {
		late, soon, at time.Duration
	}{
		"on time": {0, 250 * time.Millisecond, 300 * time.Millisecond},
		"late":    {8 * time.Millisecond, time.Second, 1300 * time.Millisecond},
	} {
		Bubble(t, name, func(t *testing.T) {
			store, l := late(t, &slowStore{memstore.New(nil), time.Hour}, c.late)
			began := time.Now()
			for store.State() == Up && time.Since(began) < time.Minute {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromPolicy {
					t.Fatal(res, err)
				}
			}
			if took := time.Since(began); took < c.soon || took > c.at {
				t.Errorf("down after %v, want %v to %v", took, c.soon, c.at)
			}
		})
	}
}

// The store is up again when a late process reads the answer to its probe, also if other calls came meanwhile.
func TestALateProcessWaitsForTheAnswerToItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slowStore{memstore.New(nil), time.Hour}
		store, l := late(t, inner, 40*time.Millisecond)
		ask := func() sash.Source {
			res, err := l.Allow(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			return res.Source
		}
		for store.State() == Up {
			ask()
		}
		inner.takes = 200 * time.Millisecond
		time.Sleep(longestPause)
		probe := make(chan sash.Source)
		go func() { probe <- ask() }()
		time.Sleep(150 * time.Millisecond)
		if by := ask(); by != driver.FromPolicy || store.State() != Probing {
			t.Errorf("a call beside the probe is answered from %v; the store is %v", by, store.State())
		}
		if by := <-probe; by != driver.FromStore || store.State() != Up {
			t.Errorf("the probe is answered from %v; the store is %v", by, store.State())
		}
	})
}

// Bubble runs a subtest in a synctest bubble.
func Bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// Must returns a function that returns the value, or fails the test at once after an error: Must(f())(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return value
	}
}

// Check fails the test at once after an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A call that waits for a place does so by the time in which this process ran, too.
func TestALateProcessQueuesAsMuchLonger(t *testing.T) {
	for name, c := range map[string]struct {
		takes, late time.Duration
		by          sash.Source
	}{
		"on time":                 {49 * time.Millisecond, 0, driver.FromStore},
		"on time, too slow":       {51 * time.Millisecond, 0, driver.FromPolicy},
		"late four times over":    {200 * time.Millisecond, 40 * time.Millisecond, driver.FromStore},
		"late, and no place left": {time.Hour, 40 * time.Millisecond, driver.FromPolicy},
	} {
		Bubble(t, name, func(t *testing.T) {
			b := &breaker{}
			b.init(DefaultBlip, DefaultBudget, nil)
			g := &guard{budget: DefaultBudget, most: 1, woke: func() { time.Sleep(c.late) }}
			b.entry.init(b, g)
			q := &question{breaker: b, patience: DefaultBudget}
			if _, _, err := b.entry.enter(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(c.takes, func() { b.entry.leave(time.Now(), true, true) })
			_, _, err := b.entry.enter(t.Context(), q)
			if by := map[bool]sash.Source{true: driver.FromStore, false: driver.FromPolicy}[err == nil]; by != c.by {
				t.Error(err)
			}
		})
	}
}
