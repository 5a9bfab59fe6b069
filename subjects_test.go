package sash_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
)

func credentials(n int) []sash.Subject {
	pool := make([]sash.Subject, n)
	for i := range pool {
		pool[i] = sash.Subject{Key: fmt.Sprintf("credential:%d", i), Cost: 1}
	}
	return pool
}

// A store that cannot decide in one step takes two round trips, however many subjects of a group there are.
func TestAnyAsksAsLittleAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far, decides := newFarStore(), atomic.Int64{}
		l := newLimiter(t, drivertest.Over(far, func(ctx context.Context, b *driver.Batch) error {
			if len(b.Ops) == 1 && b.Ops[0].Cost > 0 {
				decides.Add(1)
			}
			return far.Do(ctx, b)
		}), nil, sash.PerMinute(1))
		pool := credentials(2 * driver.ChoiceGroup)
		for call := range 2 * driver.ChoiceGroup {
			began := time.Now()
			if _, res, err := l.AllowAny(t.Context(), pool...); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if took := time.Since(began); call == 0 && took != 2*roundTrip || took > 3*roundTrip {
				t.Errorf("call %d took %v, of %v each", call, took, roundTrip)
			}
		}
		if n := decides.Load(); n != 2*driver.ChoiceGroup {
			t.Errorf("%d decisions for %d calls", n, 2*driver.ChoiceGroup)
		}
	})
}

// Another call takes the room that was seen: the next best is charged, and each call one subject.
func TestAnyGoesOnWhenTheRoomIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newFarStore(), nil, sash.PerMinute(2))
		pool := credentials(5)
		var admitted atomic.Int64
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if _, res, err := l.AllowAny(t.Context(), pool...); err != nil {
					t.Error(err)
				} else if res.Allowed {
					admitted.Add(1)
				}
			})
		}
		calls.Wait()
		var left int64
		for _, s := range pool {
			left += remaining(t, l, s.Key)
		}
		if admitted.Load() != 10 || left != 0 {
			t.Errorf("%d of 10 were admitted, and %d units are left", admitted.Load(), left)
		}
	})
}

// With equal room the pool does not always begin with the same subject.
func TestAnyBeginsAnywhere(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerMinute(1000))
	pool := credentials(4)
	seen := map[int]int{}
	for range 200 {
		for _, s := range pool {
			check(t, l.Reset(t.Context(), s.Key))
		}
		i, _, err := l.AllowAny(t.Context(), pool...)
		check(t, err)
		seen[i]++
	}
	if len(seen) != len(pool) {
		t.Errorf("of four unused subjects these were charged: %v", seen)
	}
}

func TestAWrongChoiceOfAStoreIsAnError(t *testing.T) {
	for _, chosen := range []int{-1, 2} {
		l := newLimiter(t, drivertest.Over(memstore.New(nil), func(_ context.Context, b *driver.Batch) error {
			b.Chosen = chosen
			return nil
		}), nil, sash.PerMinute(5))
		if _, _, err := l.AllowAny(t.Context(), credentials(2)...); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("%d: %v", chosen, err)
		}
	}
}

// Callers that book go to the subject that is free first, and behind those that booked it before.
func TestBookAnyTakesTheShortestQueue(t *testing.T) {
	eachWay(t, func(t *testing.T, store driver.Store) {
		l := newLimiter(t, store, nil, sash.Every(2, 10*time.Second))
		pool := credentials(3)
		began := time.Now()
		starts := map[time.Duration]int{}
		for range 18 {
			i, r, err := reserveAny(t.Context(), l, time.Minute, pool...)
			if err != nil || !r.Allowed() || i < 0 {
				t.Fatalf("%d, %v", i, err)
			}
			starts[r.Result().At.Sub(began)]++
		}
		for _, at := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
			if starts[at] != 6 {
				t.Errorf("%d start after %v, want 6 of 18: %v", starts[at], at, starts)
			}
		}
		if _, r, err := reserveAny(t.Context(), l, 25*time.Second, pool...); err != nil || r.Allowed() || r.Result().RetryAfter != 30*time.Second {
			t.Errorf("beyond 25 s: %+v, %v", r.Result(), err)
		}
	})
}

// layers stand before a store, one before the other too.
func layers(t *testing.T, store driver.Store) map[string]driver.Store {
	t.Helper()
	guard := func(store driver.Store) driver.Store {
		return must(failover.New(store, nil))(t)
	}
	leased := must(lease.New(store, time.Millisecond))(t)
	return map[string]driver.Store{
		"none": store, "coalesce": stack.GroupCommit(store), "lease": leased, "failover": guard(store),
		"failover, coalesce and lease": guard(stack.GroupCommit(leased)),
	}
}

// Before a store that lacks a power there is nothing that has it: a limiter says so at once, before it charges.
func TestADecoratorHasOnlyThePowersOfItsStore(t *testing.T) {
	for name, store := range layers(t, drivertest.Plain(memstore.New(nil))) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, nil, sash.PerHour(10))
			_, concurrency := sash.NewConcurrency(store, nil, 5, time.Minute)
			_, block := sash.New(store, &sash.Options{Block: sash.Block{For: time.Minute}}, sash.PerHour(10))
			errs := map[string]error{"NewConcurrency": concurrency, "New with a Block": block, "Reset": l.Reset(t.Context(), "k")}
			for _, call := range but("AllowN", "WaitN", "AllowAny") {
				errs[call.name] = call.make(t.Context(), l, "k", 1)
			}
			for call, err := range errs {
				if !errors.Is(err, sash.ErrUnsupported) {
					t.Errorf("%s: %v, want ErrUnsupported", call, err)
				}
			}
			if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
				t.Errorf("%d of 10 are left: %v", res.Remaining, err)
			}
		})
	}
}

func TestBlocksThatCannotBe(t *testing.T) {
	for _, b := range []sash.Block{
		{Refusals: 3}, {Window: time.Second}, {Refusals: -1, For: time.Minute}, {Refusals: 101, For: time.Minute},
		{For: -1}, {For: time.Nanosecond}, {For: 31 * 24 * time.Hour}, {For: time.Minute, Window: -1},
		{For: time.Minute, Window: 25 * time.Hour}, {For: time.Minute, Window: time.Microsecond + 1},
	} {
		if l, err := sash.New(memstore.New(nil), &sash.Options{Block: b}, sash.PerMinute(1)); !errors.Is(err, sash.ErrInvalidLimit) {
			t.Errorf("%+v: %v, %v", b, l, err)
		}
	}
	l := newLimiter(t, memstore.New(nil), &sash.Options{Block: sash.Block{For: time.Hour}}, sash.PerMinute(1))
	if got := l.Policy().Block; got != (driver.Block{Refusals: 5, Window: 60e6, Length: 3600e6}) {
		t.Errorf("the default block is %+v", got)
	}
}

// Decorators that answer or decide for the store keep blocks what they are: each refusal counts, and no sum of calls.
func TestABlockBehindDecorators(t *testing.T) {
	for name, store := range layers(t, memstore.New(nil)) {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, store, &sash.Options{Block: sash.Block{Refusals: 10, For: time.Hour}}, sash.PerHour(3))
			results := make(chan sash.Result)
			for range 30 {
				go func() {
					res, err := l.Allow(t.Context(), name)
					report(t, err)
					results <- res
				}()
			}
			admitted, blocked := 0, 0
			for range 30 {
				res := <-results
				if res.Allowed {
					admitted++
				}
				if res.Blocked {
					blocked++
				}
			}
			if admitted != 3 || blocked != 30-3-9 {
				t.Errorf("of 30 calls %d were admitted and %d were blocked, want 3 and 18", admitted, blocked)
			}
		})
	}
}

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
	res := must(l.Peek(t.Context(), key))(t)
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
