package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

var errRejected = fmt.Errorf("%w: the key holds a list", driver.ErrRejected)

// A rejecting store rejects every call on subjects whose name begins with "bad".
type rejecting struct{ *fake }

func (s rejecting) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if err := s.enter(ctx); err != nil || !strings.HasPrefix(req.Key, "bad") {
		if err != nil {
			return driver.Answer{}, err
		}
		return s.Store.Decide(ctx, req)
	}
	return driver.Answer{}, errRejected
}

func (s rejecting) DecideOnce(ctx context.Context, _ string, req driver.Request) (driver.Answer, error) {
	return s.Decide(ctx, req)
}

// Errors about one subject are answers of the store: they do not take it away from other subjects, and no failure mode
// answers instead.
func TestARejectedCallIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := map[failover.Kind]int{}
		store := guarded(t, rejecting{newFake()}, failover.Options{
			Modes:   always(failover.Open),
			OnError: func(_ error, kind failover.Kind) { reported[kind]++ },
		})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		for i := range 100 {
			for range 10 { // in a row
				_, err := l.Allow(t.Context(), "bad")
				if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, driver.ErrRejected) {
					t.Fatalf("a rejected call is answered with %v", err)
				}
			}
			if res, err := l.Allow(t.Context(), "good"); err != nil || res.Source != driver.FromStore {
				t.Fatalf("call %d on another subject: %+v, %v", i, res, err)
			}
		}
		if store.State() != failover.Up || reported[failover.Rejected] != 1000 || len(reported) != 1 {
			t.Errorf("the store is %v, and OnError got %v", store.State(), reported)
		}
	})
}

// A rejection shows that the store is back.
func TestARejectedProbeClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, rejecting{inner}, failover.Options{})
		bringDown(t, inner, store)
		inner.becomes(nil)
		time.Sleep(time.Minute)
		_, err := newLimiter(t, store, nil, sash.PerHour(1000)).Allow(t.Context(), "bad")
		if !errors.Is(err, driver.ErrRejected) || store.State() != failover.Up {
			t.Errorf("the store is %v after a rejected probe: %v", store.State(), err)
		}
	})
}

// Subjects whose writing is rejected are lost, and hold up no other.
func TestARejectedWriteHoldsUpNoOther(t *testing.T) {
	for _, good := range []int{0, 30} {
		synctest.Test(t, func(t *testing.T) {
			inner := newFake()
			store := guarded(t, rejecting{inner}, failover.Options{Modes: always(failover.Local)})
			l := newLimiter(t, store, nil, sash.PerHour(40))
			inner.becomes(fails(errRefused))
			for i := range 30 {
				allow(t, l, fmt.Sprint("bad", i), 1)
			}
			for i := range good {
				allow(t, l, fmt.Sprint("good", i), 2)
			}
			inner.becomes(nil)
			time.Sleep(3 * time.Second)
			if got := store.Stats(); got != (failover.Stats{Written: 2 * int64(good), Lost: 30}) || store.State() != failover.Up {
				t.Errorf("the store is %v; %+v", store.State(), got)
			}
		})
	}
}

// Classify can name errors of a store's own that the breaker ignores: without it, new keys take a full store down for all.
func TestClassifyRejectsACall(t *testing.T) {
	rejects := func(err error) failover.Kind {
		if errors.Is(err, memstore.ErrFull) {
			return failover.Rejected
		}
		return failover.Unknown
	}
	for want, classify := range map[failover.State]func(error) failover.Kind{failover.Up: rejects, failover.Down: nil} {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New(&memstore.Options{MaxKeys: 1, NoEviction: true})
			store := guarded(t, inner, failover.Options{Modes: always(failover.Open), Classify: classify})
			l := newLimiter(t, store, nil, sash.PerHour(1000))
			allow(t, l, "held", 1)
			for i := range 100 {
				if _, err := l.Allow(t.Context(), fmt.Sprint("new", i)); errors.Is(err, memstore.ErrFull) != (want == failover.Up) {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if res := allow(t, l, "held", 1); store.State() != want || (res.Source == sash.FromStore) != (want == failover.Up) {
				t.Errorf("the store is %v, want %v; a key that it holds: %+v", store.State(), want, res)
			}
		})
	}
}
