package coalesce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
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
