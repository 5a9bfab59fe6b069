package failover

import "time"

// A watch measures a budget as time in which this process ran. It wakes in steps. A step that ends late shows that this
// process had no processor for a while, and then the store's reply may be waiting to be read. So the budget lasts longer
// by as much, up to twice its length.
type watch struct {
	timer *time.Timer
	step  time.Duration
	steps int       // that are left
	due   time.Time // of this step
	last  time.Time // the end at the latest
	late  time.Duration
	much  time.Duration // of late: a fifth of the whole budget
	woke  func()        // called when the timer has fired; tests replace it
}

const (
	stepsOfBudget = 5
	onTime        = 2 * time.Millisecond // within which a step is not late
)

// watch starts a watch over the budget, or what is left of it.
func (g *guard) watch(left time.Duration) *watch {
	now := time.Now()
	w := &watch{step: left / stepsOfBudget, steps: stepsOfBudget, last: now.Add(2 * left), much: g.budget / stepsOfBudget, woke: g.woke}
	w.due = now.Add(w.step)
	w.timer = time.NewTimer(w.step)
	return w
}

// wait returns when done or left is closed, or the budget is used up.
func (w *watch) wait(done, left <-chan struct{}) {
	for w.steps > 0 {
		select {
		case <-done:
			return
		case <-left:
			return
		case <-w.timer.C:
			w.next()
		}
	}
}

// extend waits longer than the budget of the watch.
func (w *watch) extend(g *guard, by time.Duration, done <-chan struct{}) {
	more := g.watch(by)
	more.wait(done, nil)
	w.late += more.late
}

// next starts the next step if there is one.
func (w *watch) next() {
	if w.woke != nil {
		w.woke()
	}
	now := time.Now()
	if late := now.Sub(w.due); late > onTime {
		w.late += late
		w.due = now
	}
	if w.steps--; !now.Before(w.last) {
		w.steps = 0
	}
	if w.steps == 0 {
		return
	}
	if w.due = w.due.Add(w.step); w.due.After(w.last) {
		w.due = w.last
	}
	w.timer.Reset(w.due.Sub(now))
}

// wasLate reports whether this process was late by a fifth of the budget or more, so that a failure may be its own.
func (w *watch) wasLate() bool { return w.late >= w.much }
