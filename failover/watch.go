package failover

import "time"

// A watch measures a budget as time in which this process ran. It wakes in steps. A step that ends late shows that this
// process had no processor for a while, and then the store's reply may be waiting to be read. So the budget lasts longer
// by as much: see longest. It does not end with a wake-up that is late by a whole step: one more step lets the goroutines
// run that read replies.
type watch struct {
	timer *time.Timer
	step  time.Duration
	steps int       // that are left
	due   time.Time // of this step
	last  time.Time // the end at the latest
	late  time.Duration
	much  time.Duration // of late: a fifth of the whole budget
	more  bool          // the step after a late end has begun
	over  func() bool   // ends the watch early, if it is not nil
	woke  func()        // called when the timer has fired; tests replace it
}

const (
	stepsOfBudget = 5
	onTime        = 2 * time.Millisecond // within which a step is not late
)

// longest returns how long a budget lasts at most: ten times its length, and no more than a second longer.
func longest(budget time.Duration) time.Duration { return budget + min(9*budget, time.Second) }

// watch starts a watch over the budget, or what is left of it.
func (g *guard) watch(left time.Duration) *watch {
	w := &watch{timer: time.NewTimer(left / stepsOfBudget), much: g.budget / stepsOfBudget, woke: g.woke}
	w.begin(left)
	return w
}

// begin starts the steps of a budget. What the watch was late before counts.
func (w *watch) begin(left time.Duration) {
	now := time.Now()
	w.step, w.steps, w.last, w.more = left/stepsOfBudget, stepsOfBudget, now.Add(longest(left)), false
	w.due = now.Add(w.step)
	w.timer.Reset(w.step)
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
	late := now.Sub(w.due)
	if late > onTime {
		w.late += late
		w.due = now
	}
	if w.steps--; !now.Before(w.last) || w.over != nil && w.over() {
		w.steps = 0
	}
	switch {
	case w.steps > 0:
		if w.due = w.due.Add(w.step); w.due.After(w.last) {
			w.due = w.last
		}
	case late >= w.step && !w.more:
		w.steps, w.more, w.due = 1, true, now.Add(w.step)
	default:
		return
	}
	w.timer.Reset(w.due.Sub(now))
}

// wasLate reports whether this process was late by a fifth of the budget or more, so that a failure may be its own.
func (w *watch) wasLate() bool { return w.late >= w.much }
