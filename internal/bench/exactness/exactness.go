// Package exactness counts the units that a limiter admits in the worst window of its length. It calls as a
// client would that wants the most: once, then not until shortly before a window later, and then without a
// pause across that boundary. A fixed window admits its units on both sides of the boundary; a token bucket and
// GCRA admit what they have saved, and what returns meanwhile.
package exactness

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// callers is how many goroutines call at the same time.
const callers = 8

// A Count is the result of a run.
type Count struct {
	Worst  int // units admitted in the worst window
	All    int // units admitted in all
	Failed int // calls without an answer
}

// Over returns the units of the worst window as Markdown, bold if they exceed the limit.
func (c Count) Over(limit int) string {
	if c.Worst > limit {
		return fmt.Sprintf("**%d**", c.Worst)
	}
	return fmt.Sprint(c.Worst)
}

// An admission happened somewhere between the call and its answer.
type admission struct{ called, answered time.Time }

// Run asks for one unit per call and counts. It calls decide concurrently.
func Run(window time.Duration, decide func() (allowed bool, err error)) Count {
	var mu sync.Mutex
	var admitted []admission
	var count Count
	call := func() {
		called := time.Now()
		allowed, err := decide()
		answered := time.Now()
		if !allowed && err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			count.Failed++
		} else {
			admitted = append(admitted, admission{called, answered})
		}
	}
	began := time.Now()
	call()
	time.Sleep(time.Until(began.Add(window * 9 / 10)))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for time.Since(began) < window*24/10 {
				call()
			}
		})
	}
	group.Wait()
	count.All = len(admitted)
	count.Worst = worst(admitted, window)
	return count
}

// tick is the resolution of the stores' clocks: an instant is up to a tick later than its count.
const tick = time.Microsecond

// worst returns the most admissions that certainly happened within one window: called after its start and
// answered a tick before its end. The true number is that or more.
func worst(admitted []admission, window time.Duration) int {
	slices.SortFunc(admitted, func(a, b admission) int { return a.called.Compare(b.called) })
	most := 0
	for i, first := range admitted {
		end := first.called.Add(window - tick)
		n := 0
		for _, a := range admitted[i:] {
			if !a.called.Before(end) {
				break
			}
			if a.answered.Before(end) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
