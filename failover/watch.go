package failover

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"example.com/sash/driver"
)

// A watch measures a budget as time in which this process ran. It wakes in steps. A step that ends late shows that this process had no
// processor for a while, so that the store's reply may be waiting to be read, and the budget lasts longer by as much: see longest. It
// does not end with a wake-up that is late by a whole step, nor while the call waits in this process: while the store has not waited for
// its servers for as long as the budget.
type watch struct {
	timer *time.Timer
	step  time.Duration
	steps int       // that are left
	due   time.Time // of this step
	last  time.Time // the end at the latest
	lag   time.Duration
	more  bool // the step after a late end has begun

	g       *guard
	store   *breaker
	patient bool // it lasts longer than the budget, and ends when the store is down
}

const (
	stepsOfBudget = 5
	onTime        = 2 * time.Millisecond // within which a step is not late
)

// longest returns how long a budget lasts at most: ten times its length, and no more than a second longer.
func longest(budget time.Duration) time.Duration { return budget + min(9*budget, time.Second) }

// For how many budgets a call that may wait for its turn does so: while the store answers others, and while it answers nobody.
const (
	patientBudgets = 100
	silentBudgets  = 20
)

// watch starts a watch over what is left of a call's patience, or as long of it as the store may be silent.
func (g *guard) watch(b *breaker, left time.Duration) *watch {
	left = min(left, silentBudgets*g.budget)
	w := &watch{timer: time.NewTimer(left / stepsOfBudget), g: g, store: b, patient: left > g.budget}
	w.begin(left)
	return w
}

// persist waits, and begins anew as long as the patience lasts and the store answers others.
func (w *watch) persist(patience time.Duration, done, left <-chan struct{}) {
	end := time.Now().Add(patience)
	for answers := w.store.answers.Load(); ; {
		w.wait(done, left)
		others, rest := w.store.answers.Load(), time.Until(end)
		if w.steps > 0 || others == answers || rest < w.g.budget || w.store.now() != Up {
			return
		}
		answers = others
		w.begin(min(rest, silentBudgets*w.g.budget))
	}
}

// begin starts the steps of a budget. What the watch was late before counts.
func (w *watch) begin(left time.Duration) {
	now := time.Now()
	w.step, w.steps, w.last, w.more = left/stepsOfBudget, stepsOfBudget, now.Add(longest(left)), false
	w.due = now.Add(w.step)
	w.timer.Reset(w.step)
}

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

func (w *watch) next() {
	w.g.woke()
	now := time.Now()
	late := now.Sub(w.due)
	if late > onTime {
		w.lag += late
		w.due = now
	}
	ended := !now.Before(w.last) || w.patient && w.store.now() != Up
	if w.steps--; ended {
		w.steps = 0
	}
	switch {
	case w.steps > 0:
		if w.due = w.due.Add(w.step); w.due.After(w.last) {
			w.due = w.last
		}
	case late >= w.step && !w.more:
		w.steps, w.more, w.due = 1, true, now.Add(w.step)
	case !ended && (w.here() || w.behind()):
		w.steps, w.due = 1, now.Add(w.step)
	default:
		return
	}
	w.timer.Reset(w.due.Sub(now))
}

// here reports whether the call waits in this process: nothing has been at the store for the whole budget, less the time lost here.
func (w *watch) here() bool { return w.g.waitsBelow(w.g.budget - w.step + w.lag) }

// waitsBelow reports whether the store knows that no call has been with its servers for so long.
func (g *guard) waitsBelow(d time.Duration) bool { return g.witness != nil && g.witness.Waits() < d }

// behind reports whether goroutines wait for a processor, such as one that reads replies: this one has to wait for them.
func (w *watch) behind() bool {
	late := yield()
	w.lag += late
	return late > 0
}

// yield lets those goroutines run that are ready, and returns how long that took, or 0 if it was no time to speak of.
func yield() time.Duration {
	began := time.Now()
	runtime.Gosched()
	if took := time.Since(began); took > onTime {
		return took
	}
	return 0
}

// lagged reports whether this process was late by a fifth of the budget or more, so that a failure may be its own.
func (w *watch) lagged() bool { return w.lag >= w.g.budget/stepsOfBudget }

// Probe finds out whether the store works when nobody calls it, for a health check or after a start. It calls each part that no call has
// reached since the last Probe, and updates State, Stats, OnChange and OnError. Like a caller's Allow it charges, because a store that
// cannot write still answers Peek. The subjects are its own, with windows of a second. It calls a failing part until the part answers or
// is down, which takes Budget + Blip, or longer while this process is late. It calls a part that is down once the pause is over. The
// error is that of a part that does not work, or the context's. Call Probe every second or so; calls may overlap.
func (s *Store) Probe(ctx context.Context) error {
	errs := make([]error, len(s.breakers))
	var group sync.WaitGroup
	for i, key := range s.keys() {
		if b := &s.breakers[i]; key != "" && b.idle() {
			group.Go(func() { errs[i] = s.probe(ctx, b, key) })
		}
	}
	group.Wait()
	return cmp.Or(errs...)
}

// probe calls a part until its state is certain. It makes as many calls at a time as take a store down, in sequence within Blip.
func (s *Store) probe(ctx context.Context, b *breaker, key string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := driver.Request{Key: key, Policy: probed, Cost: 1}
	step, before := max(time.Millisecond, b.blip/(fewestFailures-1)), b.answers.Load()
	ended := make(chan error, fewestFailures)
	for i := range fewestFailures {
		go func() {
			for wait := step * time.Duration(i); ; wait = fewestFailures * step {
				select {
				case <-ctx.Done():
					ended <- ctx.Err()
					return
				case <-time.After(wait):
				}
				if i > 0 && b.now() != Up { // one call at a time tests a store that is down
					continue
				}
				out := s.single(ctx, b, false, driver.Settlement{Request: req})
				switch now := b.answers.Load(); {
				case ctx.Err() != nil:
				case !out.failed || now > before:
					ended <- nil
					return
				case b.now() != Up:
					ended <- out.err
					return
				}
			}
		}()
	}
	err := <-ended
	b.probed.Store(b.answers.Load())
	return err
}

// probed is the policy of probes. It never refuses, so that every probe writes and no cache answers it.
var probed = &driver.Policy{Limits: []driver.Limit{{Units: 1e9, Window: int64(time.Second / time.Microsecond)}}}

// probeKeys returns a key in each part, or "" for a part in which none of many keys lies.
func (g *guard) probeKeys() []string {
	keys := make([]string, len(g.breakers))
	for i, left := 0, len(keys); left > 0 && i < 1000*len(keys); i++ {
		key := fmt.Sprint("probe ", i)
		if at := g.index(key, probed); keys[at] == "" {
			keys[at] = key
			left--
		}
	}
	return keys
}
