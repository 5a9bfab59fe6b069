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

// separate is a store that decides on one subject at a time, as a cluster does on keys of different slots. It counts
// decisions, and every call takes a millisecond.
type separate struct {
	store   *memstore.Store
	decides atomic.Int64
}

func (s *separate) Powers() driver.Powers { return 0 }

func (s *separate) Do(ctx context.Context, b *driver.Batch) error {
	return driver.OneByOne(ctx, b, func(ctx context.Context, op *driver.Op) (err error) {
		time.Sleep(time.Millisecond)
		if op.Cost > 0 {
			s.decides.Add(1)
		}
		op.Answer, err = driver.Decide(ctx, s.store, op.Request)
		return err
	})
}

func credentials(n int) []sash.Subject {
	pool := make([]sash.Subject, n)
	for i := range pool {
		pool[i] = sash.Subject{Key: fmt.Sprintf("credential:%d", i), Cost: 1}
	}
	return pool
}

func TestAnyUsesEverySubjectUpToItsLimit(t *testing.T) {
	eachWay(t, func(t *testing.T, store driver.Store) {
		l := newLimiter(t, store, nil, sash.PerMinute(4))
		pool := credentials(3 * driver.ChoiceGroup)
		used := make([]int, len(pool))
		for range 4 * len(pool) {
			i, res, err := l.AllowAny(t.Context(), pool...)
			if err != nil || !res.Allowed {
				t.Fatalf("refused while there is room: %+v, %v", res, err)
			}
			used[i]++
		}
		for i, n := range used {
			if n != 4 || remaining(t, l, pool[i].Key) != 0 {
				t.Errorf("subject %d was charged %d times", i, n)
			}
		}
		if i, res, err := l.AllowAny(t.Context(), pool...); err != nil || res.Allowed || res.RetryAfter <= 0 || i < 0 {
			t.Errorf("all are full: subject %d, %+v, %v", i, res, err)
		}
	})
}

// A store that cannot decide in one step takes two round trips, however many subjects of a group there are.
func TestAnyAsksAsLittleAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &separate{store: memstore.New(nil)}
		l := newLimiter(t, store, nil, sash.PerMinute(1))
		pool := credentials(2 * driver.ChoiceGroup)
		for call := range 2 * driver.ChoiceGroup {
			began := time.Now()
			if _, res, err := l.AllowAny(t.Context(), pool...); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if took := time.Since(began); call == 0 && took != 2*time.Millisecond || took > 3*time.Millisecond {
				t.Errorf("call %d took %v, of a millisecond each", call, took)
			}
		}
		if n := store.decides.Load(); n != 2*driver.ChoiceGroup {
			t.Errorf("%d decisions for %d calls", n, 2*driver.ChoiceGroup)
		}
	})
}

// Another call takes the room that was seen: the next best is charged, and each call one subject.
func TestAnyGoesOnWhenTheRoomIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &separate{store: memstore.New(nil)}
		l := newLimiter(t, store, nil, sash.PerMinute(2))
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
			if err := l.Reset(t.Context(), s.Key); err != nil {
				t.Fatal(err)
			}
		}
		i, _, err := l.AllowAny(t.Context(), pool...)
		if err != nil {
			t.Fatal(err)
		}
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
		guarded, err := failover.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		return guarded
	}
	leased, err := lease.New(store, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
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
					if err != nil {
						t.Error(err)
					}
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
