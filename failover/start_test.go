package failover

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A starter store decides what is started after a while, or panics, or starts nothing.
type starter struct {
	*memstore.Store
	takes                   time.Duration
	panics, refuses         bool
	leavePanics             bool
	started, decided, lefts atomic.Int64
}

func (s *starter) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	s.decided.Add(1)
	return s.Store.Decide(ctx, req)
}

func (s *starter) Start(ctx context.Context, req driver.Request, done func(driver.Answer, error)) driver.Started {
	switch {
	case s.refuses:
		return nil
	case s.panics:
		time.AfterFunc(time.Millisecond, func() { done(driver.Answer{}, nil) }) // a store with two bugs
		panic("out of order")
	}
	s.started.Add(1)
	time.AfterFunc(s.takes, func() { done(s.Store.Decide(context.WithoutCancel(ctx), req)) })
	return s
}

func (s *starter) Leave() {
	s.lefts.Add(1)
	if s.leavePanics {
		panic("out of order")
	}
}

func overStarter(t *testing.T, inner *starter, opts *Options) (*Store, *sash.Limiter) {
	t.Helper()
	store, err := New(inner, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := sash.New(store, nil, sash.PerHour(1000))
	if err != nil {
		t.Fatal(err)
	}
	return store, l
}

func TestACallThatTheStoreStartsNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &starter{Store: memstore.New(nil), takes: 20 * time.Millisecond}
		store, l := overStarter(t, inner, nil)
		time.AfterFunc(10*time.Millisecond, func() {
			if n := store.Stats().InFlight; n != 1 {
				t.Errorf("%d calls are in flight", n)
			}
		})
		res, err := l.Allow(t.Context(), "k")
		if err != nil || res.Source != driver.FromStore || res.Remaining != 999 {
			t.Errorf("%+v, %v", res, err)
		}
		if store.Stats().InFlight != 0 || inner.decided.Load() != 0 || inner.lefts.Load() != 0 {
			t.Errorf("%d in flight, %d decided, %d left", store.Stats().InFlight, inner.decided.Load(), inner.lefts.Load())
		}
	})
}

// The budget and the caller's end are those of other calls, and failover leaves the started call when the budget is over. The
// call keeps its place until the store is done with it.
func TestTheBudgetOfAStartedCall(t *testing.T) {
	for name, patience := range map[string]time.Duration{"the budget": time.Hour, "the caller": 10 * time.Millisecond} {
		bubble(t, name, func(t *testing.T) {
			inner := &starter{Store: memstore.New(nil), takes: time.Second}
			store, l := overStarter(t, inner, nil)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			_, err := l.Allow(ctx, "k")
			if took := time.Since(began); err == nil || took != min(patience, DefaultBudget) || inner.lefts.Load() != 0 && patience < DefaultBudget {
				t.Errorf("after %v: %v; left %d times", took, err, inner.lefts.Load())
			}
			if patience > DefaultBudget && !errors.Is(err, ErrBudget) {
				t.Error(err)
			}
			time.Sleep(DefaultBudget)
			synctest.Wait()
			if inner.lefts.Load() != 1 || store.Stats().InFlight != 1 {
				t.Errorf("left %d times, %d in flight", inner.lefts.Load(), store.Stats().InFlight)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if n := store.Stats().InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		})
	}
}

// What the store has charged late, it is not charged again for the local admission.
func TestALateAnswerToAStartedCallIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &starter{Store: memstore.New(nil), takes: time.Second}
		store, l := overStarter(t, inner, &Options{Local: memstore.New(nil), Modes: Modes{Rules: []Rule{{Mode: Local}}}})
		defer func() { _ = store.Close(t.Context()) }()
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromLocal {
			t.Fatal(res, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := store.Stats(); got != (Stats{}) {
			t.Errorf("%+v", got)
		}
		if res, err := inner.Store.Decide(t.Context(), driver.Request{Key: "k", Policy: policyOf(t)}); err != nil || res.Remaining() != 999 {
			t.Errorf("%d left, %v", res.Remaining(), err)
		}
	})
}

func policyOf(t *testing.T) *driver.Policy {
	t.Helper()
	return &driver.Policy{Limits: []driver.Limit{{Units: 1000, Window: time.Hour.Microseconds()}}}
}

func TestAStoreThatPanicsAsItStartsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &starter{Store: memstore.New(nil), panics: true}
		store, l := overStarter(t, inner, nil)
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "out of order") {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if n := store.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// The budget of a call whose caller has left ends in a goroutine where nobody could recover a panic.
func TestAStoreThatPanicsAsItIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &starter{Store: memstore.New(nil), takes: time.Second, leavePanics: true}
		var reports []string
		store, l := overStarter(t, inner, &Options{OnError: func(err error, _ Kind) { reports = append(reports, err.Error()) }})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := store.Stats().InFlight; n != 0 || inner.lefts.Load() != 1 {
			t.Errorf("%d in flight, left %d times", n, inner.lefts.Load())
		}
		if !strings.Contains(strings.Join(reports, "; "), "out of order") {
			t.Error(reports)
		}
	})
}

// What a late booking leads to may block: see forgo.
func TestABookingIsNotStarted(t *testing.T) {
	inner := &starter{Store: memstore.New(nil)}
	store, _ := overStarter(t, inner, nil)
	req := driver.Request{Key: "k", Cost: 1, Within: time.Minute.Microseconds(), Policy: policyOf(t)}
	if _, err := store.Decide(t.Context(), req); err != nil || inner.started.Load() != 0 || inner.decided.Load() != 1 {
		t.Errorf("%v; started %d times, decided %d times", err, inner.started.Load(), inner.decided.Load())
	}
}
