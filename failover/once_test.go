package failover_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
)

func once(t *testing.T, l *sash.Limiter, id, key string, cost int64) sash.Result {
	t.Helper()
	return failover.Must(l.AllowOnce(t.Context(), id, key, cost))(t)
}

// A lossy store charges, and then fails or hangs: its reply is lost.
type lossy struct {
	*fake
	after atomic.Pointer[func(context.Context) error] // nil: nothing is lost
}

func loseReplies(inner *fake, after func(context.Context) error) *lossy {
	s := &lossy{fake: inner}
	if after != nil {
		s.after.Store(&after)
	}
	return s
}

func (s *lossy) Do(ctx context.Context, b *driver.Batch) error {
	err := s.fake.Do(ctx, b)
	if after := s.after.Load(); after != nil && err == nil && b.Ops[0].Kind == driver.Charge && b.Ops[0].ID != "" {
		err = (*after)(ctx)
	}
	return err
}

// A call with an ID is charged to the store once, whatever the first try's outcome and the source of its answer.
func TestACallWithAnIDIsChargedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(context.Context) error
	}{
		"not sent":                  {before: fails(errRefused)},
		"failed before it charged":  {before: fails(errBroken)},
		"failed after it charged":   {after: fails(errBroken)},
		"hung before it charged":    {before: stalls},
		"hung, and then charged":    {before: hangs(time.Second)},
		"charged, and then hung":    {after: hangs(time.Second)},
		"charged, and then stalled": {after: stalls},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner := loseReplies(newFake(), c.after)
			store := guarded(t, inner, failover.Options{Modes: always(failover.Local), Instances: four})
			l := newLimiter(t, store, nil, sash.PerHour(40))
			inner.becomes(c.before)
			for try := range 3 {
				if res := once(t, l, "job 7", "k", 2); !res.Allowed || res.Source != driver.FromLocal || res.Remaining != 8 {
					t.Fatalf("try %d: %+v", try, res)
				}
			}
			time.Sleep(time.Minute)
			inner.becomes(nil)
			inner.after.Store(nil)
			time.Sleep(5 * time.Second)
			if res := once(t, l, "job 8", "another", 1); res.Source != driver.FromStore {
				t.Fatalf("the store is back, and the answer is from the %v", res.Source)
			}
			synctest.Wait()
			if left := remaining(t, inner.fake, sash.PerHour(40)); left != 38 {
				t.Errorf("%d of 40 are left, want 38", left)
			}
			if res := once(t, l, "job 7", "k", 2); !res.Allowed || res.Source != driver.FromStore {
				t.Errorf("repeated when the store is back: %+v", res)
			}
			if left := remaining(t, inner.fake, sash.PerHour(40)); left != 38 {
				t.Errorf("%d of 40 are left after a repetition, want 38", left)
			}
			if stats := store.Stats(); stats != (failover.Stats{Written: 2}) {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// After the time for which the store remembers IDs it is not known any more whether it charged.
func TestACallThatIsTooOldIsNotChargedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := loseReplies(newFake(), fails(errBroken))
		store := guarded(t, inner, failover.Options{Modes: always(failover.Local), Instances: four})
		l := newLimiter(t, store, nil, sash.PerHour(40))
		once(t, l, "job 7", "k", 2)
		time.Sleep(driver.RepeatTime + time.Second)
		inner.after.Store(nil)
		time.Sleep(5 * time.Second)
		if left := remaining(t, inner.fake, sash.PerHour(40)); left != 38 {
			t.Errorf("%d of 40 are left, want 38", left)
		}
		if stats := store.Stats(); stats != (failover.Stats{Doubtful: 2}) {
			t.Errorf("%+v", stats)
		}
	})
}

// An answer from a cache between this store and the other says nothing of the other: a probe that got one has not found it back.
func TestAnAnswerFromACacheIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, hit := newFake(), false
		store := guarded(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
			if !hit || b.Ops[0].Kind != driver.Charge || b.Ops[0].ID != "" {
				return inner.Do(ctx, b)
			}
			err := inner.Store.Do(ctx, b)
			b.Ops[0].Answer.Source = driver.FromCache
			return err
		}), failover.Options{Modes: always(failover.Closed)})
		bringDown(t, inner, store)
		hit = true
		time.Sleep(5 * time.Second)
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		if res := allow(t, l, "k", 1); res.Source != driver.FromCache || store.State() != failover.Down {
			t.Errorf("the store is %v after an answer from the %v", store.State(), res.Source)
		}
		hit = false
		inner.becomes(nil)
		if res := allow(t, l, "k", 1); res.Source != driver.FromStore || store.State() != failover.Up {
			t.Errorf("the store is %v after an answer from the %v", store.State(), res.Source)
		}
	})
}

// A charge that is settled above its estimate uses up this process's share too: once, however often that is repeated, and
// whatever the modes of the store that settles: the service settles for all of its rules.
func TestASettlementThatIsRepeatedCountsLocallyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		store := guarded(t, inner, inFour)
		closed := failover.Must(store.With(failover.Modes{}))(t)
		l := newLimiter(t, store, nil, sash.PerHour(100))
		for _, id := range []string{"one", "two"} {
			req := driver.Request{Key: "k", Cost: 2, Policy: l.Policy(), MaySettle: true}
			res := failover.Must(drivertest.Of(store).Once(t.Context(), id, req))(t)
			for range 9 { // with the ID of the call, which is another one
				set := driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: 10, ID: id}
				failover.Check(t, drivertest.Of(closed).Settle(t.Context(), set))
			}
		}
		bringDown(t, inner, store)
		if got := admit(t, l, "k", 30); got != 5 {
			t.Errorf("%d were admitted locally, want what 20 units left of the share of 25", got)
		}
	})
}
