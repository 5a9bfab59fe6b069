package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/judge"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
	"example.com/sash/storetest"
)

func TestLeaseOverFailoverIsRefused(t *testing.T) {
	store := guarded(t, newFake(), failover.Options{})
	for name, inner := range map[string]driver.Store{"failover": store, "coalesce over failover": stack.GroupCommit(store)} {
		if _, err := lease.New(inner, time.Second); err == nil {
			t.Errorf("leases over %s", name)
		}
	}
}

// A store that works answers as if it had no decorator.
func TestAStoreThatWorksIsNotChanged(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		store := failover.Must(failover.New(memstore.New(&memstore.Options{Now: clock.Now}), &failover.Options{
			Modes:     failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
			Budget:    time.Minute, // a machine that is slow is not what is tested here
			Local:     memstore.New(&memstore.Options{Now: clock.Now}),
			Instances: func() int { return 3 },
		}))(t)
		return storetest.Harness{Store: store, Now: clock.Now, Advance: clock.Advance}
	})
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return failover.Must(sash.New(store, opts, limits...))(t)
}

// A knowing store knows the answer of one subject, and hangs otherwise.
type knowing struct{ knows func() driver.Answer }

func (k *knowing) Powers() driver.Powers { return 0 }

func (k *knowing) Do(ctx context.Context, _ *driver.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

func (k *knowing) Recall(op *driver.Op) bool {
	if op.Key != "known" {
		return false
	}
	op.Answer = k.knows()
	return true
}

// What a store knows is answered at once while it is up, also when no further call may be under way.
func TestWhatTheStoreKnowsNeedsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &knowing{func() (answer driver.Answer) {
			answer.Set(1, 1, []driver.Status{{Retry: 7e6}})
			answer.Source = driver.FromCache
			return answer
		}}
		store := guarded(t, inner, failover.Options{MaxInFlight: 1})
		l := newLimiter(t, store, nil, sash.PerHour(5))
		go func() { _, _ = l.Allow(t.Context(), "other") }()
		synctest.Wait()
		began := time.Now()
		res, err := l.Allow(t.Context(), "known")
		if took := time.Since(began); err != nil || res.Source != sash.FromCache || res.RetryAfter != 7*time.Second || took != 0 {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if res, err := l.Allow(left, "known"); err == nil {
			t.Errorf("a caller that has left: %+v", res)
		}
		for store.State() == failover.Up {
			_, _ = l.Allow(t.Context(), "other")
		}
		if res, err := l.Allow(t.Context(), "known"); err == nil {
			t.Errorf("by a store that is down: %+v", res)
		}
		time.Sleep(time.Second)
	})
}

// A panic does not end the process, and the call is one of the store.
func TestAStoreThatPanicsKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := guarded(t, &knowing{func() driver.Answer { panic("lost") }}, failover.Options{})
		l := newLimiter(t, store, nil, sash.PerHour(5))
		began := time.Now()
		if res, err := l.Allow(t.Context(), "known"); err == nil || time.Since(began) != failover.DefaultBudget {
			t.Errorf("after %v: %+v, %v", time.Since(began), res, err)
		}
		time.Sleep(time.Second)
	})
}
