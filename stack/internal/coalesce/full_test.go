package coalesce_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"example.com/sash"
	"example.com/sash/stack/internal/coalesce"
)

// Callers that ask again at once find each other in the next batch.
func TestThoseWhoWereAnsweredAreInTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 64, 50
		store := newFar()
		l := limiter(t, coalesce.New(store), sash.PerMinute(100_000))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range rounds {
					if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
						t.Errorf("%+v, %v", res, err)
					}
				}
			})
		}
		wg.Wait()
		if n := store.calls.Load(); n > rounds*3/2 {
			t.Errorf("%d calls of the store; %d and one for the first caller are enough", n, rounds)
		}
	})
}
