package coalesce_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/stack/internal/coalesce"
)

// A hanging store answers every call, except that one whose cost is hangs waits until its context ends.
type hanging struct {
	*far
	hangs int64
}

func (h *hanging) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if req.Cost == h.hangs {
		h.underWay.Add(1)
		defer h.underWay.Add(-1)
		<-ctx.Done()
		return driver.Answer{}, ctx.Err()
	}
	return h.far.Decide(ctx, req)
}

// Callers that have their answer do not wait for the rest of the batch, and do not keep it alive.
func TestABatchIsCanceledOnceEveryUnansweredCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{newFar(), 9}
		l := limiter(t, coalesce.New(store), sash.PerMinute(10))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = l.Allow(t.Context(), "k") })
		synctest.Wait()
		wg.Go(func() {
			if res, err := l.AllowN(t.Context(), "k", 2); err != nil || !res.Allowed {
				t.Errorf("a call that fits: %+v, %v", res, err)
			}
		})
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() { _, _ = l.AllowN(impatient, "k", 9) }) // does not fit together with the 2: decided alone
		wg.Wait()
		synctest.Wait()
		if n := store.underWay.Load(); n != 0 {
			t.Errorf("%d decisions are under way although no caller waits", n)
		}
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Errorf("afterwards: %+v, %v", res, err)
		}
	})
}

// A numbered store answers with the instant 1, 2, 3 and so on, in microseconds, after a random delay.
type numbered struct {
	*memstore.Store
	n atomic.Int64
}

func (s *numbered) Decide(_ context.Context, req driver.Request) (driver.Answer, error) {
	from := s.n.Add(1)
	for range rand.IntN(200) {
		_ = time.Now()
	}
	return driver.NewAnswer(from, 0, []driver.Status{{Remaining: 1 << 30}}), nil
}

// Calls are reused. When a caller gives up just as its answer arrives, no later caller may receive that answer.
func TestNoCallerGetsTheAnswerToAnEarlierCall(t *testing.T) {
	store := &numbered{Store: memstore.New(nil)}
	l := limiter(t, coalesce.New(store), sash.PerMinute(1<<16))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithCancel(context.Background())
				begun := store.n.Load()
				if rand.IntN(2) == 0 {
					go cancel()
				}
				res, err := l.Allow(ctx, "k")
				cancel()
				switch {
				case err != nil: // it gave up
				case res.At.UnixMicro() <= begun:
					t.Errorf("decision %d for a call that came after %d", res.At.UnixMicro(), begun)
				}
			}
		})
	}
	wg.Wait()
}
