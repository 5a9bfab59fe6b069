package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// A knowing store knows the answer of one subject, and hangs otherwise.
type knowing struct{ knows func() driver.Answer }

func (k *knowing) Decide(ctx context.Context, _ driver.Request) (driver.Answer, error) {
	<-ctx.Done()
	return driver.Answer{}, ctx.Err()
}

func (k *knowing) Recall(req driver.Request) (driver.Answer, bool) {
	if req.Key != "known" {
		return driver.Answer{}, false
	}
	return k.knows(), true
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
