package callers_test

import (
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
)

// Calls of a few workers at once, whose cost is known afterwards and is at most the estimate: no window
// ever holds more than the limit, and what was not used is used by others.
func TestReservationsShareALimit(t *testing.T) {
	l := startLive(t)
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			limits := []sash.Limit{sash.Every(100, 50*time.Millisecond), sash.Every(700, time.Second)}
			limiter := l.limiter(t, a, limits...)
			var mu sync.Mutex
			var used []judge.Call
			var tokens int64
			var group sync.WaitGroup
			for worker := range 5 {
				group.Go(func() {
					for n := range 200 {
						r, err := limiter.Reserve(t.Context(), "model", 20)
						if err != nil {
							t.Error(err)
							return
						}
						if !r.Allowed() {
							continue
						}
						actual := int64((worker + n) % 21)
						mu.Lock()
						used = append(used, judge.Call{At: r.Result().At, Cost: actual})
						tokens += actual
						mu.Unlock()
						if err := r.Settle(t.Context(), actual); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if err := judge.CheckHistory(limits, used); err != nil {
				t.Error(err)
			}
			if len(used) <= 5 {
				t.Errorf("%d calls were admitted: nothing was given back", len(used))
			}
			longest := sash.Every(700, time.Second)
			if res, err := limiter.Peek(t.Context(), "model"); err != nil || time.Since(used[0].At) < longest.Window/2 && res.Limits()[1].Remaining != longest.Units-tokens {
				t.Errorf("%d of 700 are left after %d (%v)", res.Limits()[1].Remaining, tokens, err)
			}
		})
	}
}
