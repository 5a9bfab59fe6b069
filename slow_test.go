package sash_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A slowStore decides, and answers later, as a store on a network does.
type slowStore struct {
	*memstore.Store
	takes time.Duration
}

func (s *slowStore) answer(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) Do(ctx context.Context, b *driver.Batch) error {
	err := s.Store.Do(ctx, b)
	if b.Ops[0].Kind == driver.Charge && b.Ops[0].ID == "" {
		if late := s.answer(ctx); late != nil {
			return late
		}
	}
	return err
}

// The store has a second more than its caller; synctest fails if anything runs on after that.
func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, &slowStore{memstore.New(nil), time.Hour}, nil, sash.PerHour(3))
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Minute, stop)
		began := time.Now()
		if _, err := l.Reserve(ctx, "k", 1, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the caller waited %v", took)
		}
		time.Sleep(time.Second)
	})
}

func TestWaitingForASlotEndsAsLimitedAlsoWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, &slowStore{memstore.New(nil), 40 * time.Millisecond}, 1, time.Hour)
		start(t, c, "k")
		for ms := 41; ms < 200; ms++ {
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			if _, err := c.Wait(ctx, "k"); !errors.Is(err, sash.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %d ms: %v", ms, err)
			}
			stop()
		}
		time.Sleep(time.Second) // for the store to end the last question
	})
}

// onceStore counts the settlements that a store has to remember.
type onceStore struct {
	*memstore.Store
	settled, named int
	fails          error
}

func (s *onceStore) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind == driver.Settle {
		s.settled++
		if b.Ops[0].ID != "" {
			s.named++
		}
		if s.fails != nil {
			return s.fails
		}
	}
	return s.Store.Do(ctx, b)
}

func TestASlotIsReleasedOnceAndLeavesNothingToRemember(t *testing.T) {
	store := &onceStore{Store: memstore.New(nil)}
	c := newConcurrency(t, store, 1, time.Hour)
	for range 5 {
		slot := start(t, c, "k")
		for range 3 {
			if err := slot.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Do(t.Context(), "k", func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if store.settled != 10 || store.named != 0 {
		t.Errorf("%d settlements, %d of them with an ID to remember; want 10 and 0", store.settled, store.named)
	}
	store.fails = errLost
	slot := start(t, c, "k")
	if err := slot.Release(t.Context()); !errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	if err := slot.Release(t.Context()); err != nil || store.settled != 11 {
		t.Errorf("a release that may have been made was repeated: %d times, %v", store.settled, err)
	}
}

// A crowdedStore counts the calls that it works on at once.
type crowdedStore struct {
	*slowStore
	now, most atomic.Int64
}

func (s *crowdedStore) Do(ctx context.Context, b *driver.Batch) error {
	switch {
	case len(b.Ops) > 1 && b.Ops[0].Kind == driver.Charge:
		return driver.ErrApart // as for keys of different slots
	case b.Ops[0].Kind == driver.Charge:
		if n := s.now.Add(1); n > s.most.Load() {
			s.most.Store(n)
		}
		defer s.now.Add(-1)
	}
	return s.slowStore.Do(ctx, b)
}

// Callers who give up and come again wait for what is still decided for those before, so the store does not get more and
// more to do, and everything is given back.
func TestCallersWhoGiveUpAndComeAgainAreBounded(t *testing.T) {
	for _, reserve := range calls[8:11] {
		t.Run(reserve.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &crowdedStore{slowStore: &slowStore{memstore.New(nil), 100 * time.Millisecond}}
				l := newLimiter(t, store, nil, sash.PerHour(100_000))
				const callers = 16
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						for range 500 {
							ctx, stop := context.WithTimeout(t.Context(), 2*time.Millisecond)
							if err := reserve.make(ctx, l, "a", 1); !errors.Is(err, context.DeadlineExceeded) {
								t.Error(err)
							}
							stop()
						}
					})
				}
				group.Wait()
				if most := store.most.Load(); most > 2*(callers+15) { // ReserveAny looks at all at once
					t.Errorf("the store works on %d calls at once, for %d callers", most, callers)
				}
				time.Sleep(3 * time.Second)
				for _, s := range two("a", 1) {
					if left := remaining(t, l, s.Key); left != 100_000 {
						t.Errorf("%d units of %s stay charged", 100_000-left, s.Key)
					}
				}
			})
		})
	}
}
