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
	"example.com/sash/memstore"
)

// countingStore counts the decisions of a store.
type countingStore struct {
	driver.Store
	mu    sync.Mutex
	calls int
}

func (s *countingStore) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	return s.Store.Decide(ctx, req)
}

func TestWaitWakesAtTheReleaseAndAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: memstore.New(nil)}
		l := newLimiter(t, store, nil, sash.Every(3, 10*time.Second))
		start := time.Now()
		for range 3 {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if err := l.WaitN(t.Context(), "k", 2); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != 11*time.Second {
			t.Errorf("two units were admitted after %v; the second charge leaves at 11s", waited)
		}
		if store.calls != 5 {
			t.Errorf("the store was asked %d times for 4 calls of which one waited", store.calls)
		}
	})
}

func TestWaitFailsAtOnceWhenTheDeadlineCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(nil), nil, sash.PerMinute(1))
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		err := l.Wait(ctx, "k")
		if time.Since(start) != 0 {
			t.Errorf("it took %v to fail", time.Since(start))
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sash.ErrLimited) {
			t.Errorf("the error is %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute+time.Microsecond)
		defer cancel()
		if err := l.Wait(ctx, "k"); err != nil {
			t.Errorf("a deadline after the release: %v", err)
		}
	})
}

func TestWaitHonoursCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(1))
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		err := l.Wait(ctx, "k")
		if !errors.Is(err, context.Canceled) || errors.Is(err, sash.ErrLimited) {
			t.Errorf("the error is %v", err)
		}
		if time.Since(start) != time.Second {
			t.Errorf("it returned after %v", time.Since(start))
		}
	})
}

func TestManyWaitersAreAdmittedAtTheRateOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(nil), nil, sash.Every(10, time.Second))
		start := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if err := l.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("50 calls at 10 per second took %v", took)
		}
	})
}
