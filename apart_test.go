package sash_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// farStore is a store whose subjects all live in different places, a round trip away.
type farStore struct{ apartStore }

const roundTrip = time.Millisecond

func (s farStore) Do(ctx context.Context, b *driver.Batch) error {
	if len(b.Ops) == 1 || b.Ops[0].Kind != driver.Charge {
		time.Sleep(roundTrip / 2)
		defer time.Sleep(roundTrip / 2)
	}
	return s.apartStore.Do(ctx, b)
}

func newFarStore() farStore {
	return farStore{apartStore{memstore.New(&memstore.Options{Now: time.Now})}}
}

// Two callers want the same two units at once, and name them in either order: one gets both. The other one begins up to
// three round trips later, so that the calls meet at every step.
func TestTwoCallsOverSubjectsApartDoNotRefuseEachOther(t *testing.T) {
	a, b := sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}
	for _, subjects := range [][2][]sash.Subject{{{a, b}, {b, a}}, {{a, b}, {a, b}}} {
		for late := time.Duration(0); late <= 3*roundTrip; late += roundTrip / 4 {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newFarStore(), nil, sash.PerHour(1))
				var results [2]sash.Result
				var callers sync.WaitGroup
				for i := range results {
					callers.Go(func() {
						time.Sleep(time.Duration(i) * late)
						var err error
						if results[i], err = l.AllowAll(t.Context(), subjects[i]...); err != nil {
							t.Error(err)
						}
					})
				}
				callers.Wait()
				if results[0].Allowed == results[1].Allowed {
					t.Errorf("%v later: both calls got %v, want one of them admitted", late, results[0].Allowed)
				}
			})
		}
	}
}

// A caller who leaves gets its error at once, and nothing stays charged, not even the step that was under way.
func TestACallerThatLeavesIsChargedForNoSubjectApart(t *testing.T) {
	subjects := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1}, {Key: "c", Cost: 1}}
	for leaves := roundTrip / 4; leaves < 5*roundTrip; leaves += roundTrip / 4 {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newFarStore(), nil, sash.PerHour(1))
			ctx, cancel := context.WithTimeout(t.Context(), leaves)
			defer cancel()
			began := time.Now()
			if _, err := l.AllowAll(ctx, subjects...); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is %v", err)
			}
			if took := time.Since(began); took != leaves {
				t.Errorf("the caller waited for %v, longer than its %v", took, leaves)
			}
			time.Sleep(2 * time.Second)
			for _, s := range subjects {
				if left := remaining(t, l, s.Key); left != 1 {
					t.Errorf("after %v: %d of 1 left for %s", leaves, left, s.Key)
				}
			}
		})
	}
}

// Of a process that ends within a decision one charge of each subject may stay, until it leaves the window.
func TestAProcessThatEndsLeavesAtMostOneChargeForEachSubjectApart(t *testing.T) {
	subjects := []sash.Subject{{Key: "a", Cost: 2}, {Key: "b", Cost: 1}, {Key: "c", Cost: 3}}
	stays := make(map[string]bool)
	for calls := range 5 { // two looks and three charges are a whole decision
		synctest.Test(t, func(t *testing.T) {
			far := newFarStore()
			l := newLimiter(t, drivertest.Over(far, func(ctx context.Context, b *driver.Batch) error {
				if len(b.Ops) == 1 {
					if calls--; calls < 0 {
						return errors.New("the process has ended")
					}
				}
				return far.Do(ctx, b)
			}), nil, sash.PerHour(10))
			if _, err := l.AllowAll(t.Context(), subjects...); !errors.Is(err, sash.ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
			others := newLimiter(t, far, nil, sash.PerHour(10))
			for _, s := range subjects {
				switch remaining(t, others, s.Key) {
				case 10:
				case 10 - s.Cost:
					stays[s.Key] = true
				default:
					t.Errorf("%s was charged more than once", s.Key)
				}
			}
			time.Sleep(time.Hour)
			for _, s := range subjects {
				if left := remaining(t, others, s.Key); left != 10 {
					t.Errorf("an hour later %d of 10 are left for %s", left, s.Key)
				}
			}
		})
	}
	if !stays["a"] || !stays["b"] {
		t.Errorf("only %v stayed charged: no process ended between two charges", stays)
	}
}

func remaining(t *testing.T, l *sash.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// apartStore is a store whose subjects all live in different places, as on a cluster.
type apartStore struct{ *memstore.Store }

func (s apartStore) Do(ctx context.Context, b *driver.Batch) error {
	if len(b.Ops) > 1 && b.Ops[0].Kind == driver.Charge {
		return driver.ErrApart
	}
	return s.Store.Do(ctx, b)
}

// eachWay runs a test on a store that decides over several subjects in one step, and on one that does not, in bubbles.
func eachWay(t *testing.T, test func(t *testing.T, store driver.Store)) {
	for name, wrap := range map[string]func(*memstore.Store) driver.Store{
		"in one step": func(s *memstore.Store) driver.Store { return s },
		"one by one":  func(s *memstore.Store) driver.Store { return apartStore{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, wrap(memstore.New(nil))) })
		})
	}
}

func TestADecisionComesFromTheLeastOfItsSubjectsSources(t *testing.T) {
	inner := memstore.New(nil)
	for key, want := range map[string]sash.Source{"a": sash.FromLocal, "b": sash.FromLocal, "c": sash.FromStore} {
		local := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
			err := inner.Do(ctx, b)
			for i := range b.Ops {
				if op := &b.Ops[i]; op.Key == key {
					op.Answer.Source, op.Answer.Cause = sash.FromLocal, errors.New("down")
				}
			}
			return err
		})
		l := newLimiter(t, local, nil, sash.PerHour(5))
		res, err := l.AllowAll(t.Context(), sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1})
		if err != nil || res.Source != want || (res.Cause == nil) != (want == sash.FromStore) {
			t.Errorf("%s: from the %v because of %v, %v", key, res.Source, res.Cause, err)
		}
	}
}
