// Package exactness counts the units that a limiter admits in the worst window of its length. It asks as
// a client would who wants the most: one call, silence until shortly before a window after it ends, and
// then without a pause across that boundary. A fixed window gives its units on both sides of it; a token
// bucket and GCRA give what they have saved, and what comes back meanwhile.
package exactness

import (
	"slices"
	"sync"
	"time"
)

// callers ask at the same time.
const callers = 8

// A Count is what came of a run.
type Count struct {
	Worst int // units admitted in the worst window
	All   int // units admitted in all
	Errs  int // calls without an answer
}

// An admission happened somewhere between the two times.
type admission struct{ asked, answered time.Time }

// Run asks for one unit a call and counts. Decide is called concurrently.
func Run(window time.Duration, decide func() (allowed bool, err error)) Count {
	var mu sync.Mutex
	var admitted []admission
	var count Count
	ask := func() {
		asked := time.Now()
		allowed, err := decide()
		answered := time.Now()
		if !allowed && err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			count.Errs++
		} else {
			admitted = append(admitted, admission{asked, answered})
		}
	}
	began := time.Now()
	ask()
	time.Sleep(time.Until(began.Add(window * 9 / 10)))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for time.Since(began) < window*24/10 {
				ask()
			}
		})
	}
	group.Wait()
	count.All = len(admitted)
	count.Worst = worst(admitted, window)
	return count
}

// tick is how finely the clocks of stores count: an instant is up to a tick later than its count says.
const tick = time.Microsecond

// worst returns the most admissions that surely happened within one window: those that were asked for
// after its start and answered a tick before its end. The true figure is that or more.
func worst(admitted []admission, window time.Duration) int {
	slices.SortFunc(admitted, func(a, b admission) int { return a.asked.Compare(b.asked) })
	most := 0
	for i, first := range admitted {
		end := first.asked.Add(window - tick)
		n := 0
		for _, a := range admitted[i:] {
			if !a.asked.Before(end) {
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
