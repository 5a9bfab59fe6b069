package failover

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A clock measures the time of calls as time in which this process ran. It wakes in steps while there are calls. A step that comes late
// shows that this process had no processor for a while, so that replies may be waiting to be read. Every call then gets that much more
// time, up to longest. If a step is late by a whole step, a call whose time is over gets one more step. Nor does a call end as long as
// it waits in this process, which is while the store has not waited for its servers for a whole budget.
type clock struct {
	timer *time.Timer // of the next step
	runs  bool
	due   time.Time     // of the next step
	lag   time.Duration // the sum of the delays of all steps
}

const (
	stepsOfBudget = 5
	onTime        = 2 * time.Millisecond // within which a step is not late
)

// longest returns how long a budget lasts at most: ten times its length, and no more than a second longer.
func longest(budget time.Duration) time.Duration { return budget + min(9*budget, time.Second) }

const (
	longestWait = time.Second // for a turn, while the store answers, unless the budget can last longer

	// How many budgets a call that may wait does wait, while the store answers other calls and while it answers none.
	patientBudgets = 100
	silentBudgets  = 20
)

// start starts the clock unless it runs. The caller holds mu.
func (a *admission) start(now time.Time) {
	switch {
	case a.runs:
		return
	case a.timer == nil:
		a.timer = time.AfterFunc(a.gap(), a.step)
	default:
		a.timer.Reset(a.gap())
	}
	a.runs, a.due = true, now.Add(a.gap())
}

func (a *admission) gap() time.Duration { return a.g.budget / stepsOfBudget }

// lagged reports whether this process has run late by a step or more since a call came, so that it may have caused a failure itself.
func (a *admission) lagged(c *call) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lag-c.lag >= a.gap()
}

// A look is the state that a step starts from.
type look struct {
	now    time.Time
	late   bool          // the step is late by a whole step
	behind bool          // goroutines waited for a processor, such as one that reads replies
	waits  time.Duration // for how long the store has waited for its servers
}

// step ends calls and waits that take too long, and gives out places that calls of other parts have freed.
func (a *admission) step() {
	a.g.woke()
	began := time.Now()
	runtime.Gosched() // let goroutines read replies
	l := look{now: time.Now(), waits: math.MaxInt64}
	l.behind = l.now.Sub(began) > onTime
	if a.g.witness != nil {
		l.waits = a.g.witness.Waits()
	}
	a.mu.Lock()
	late := l.now.Sub(a.due)
	if l.late = late >= a.gap(); late > onTime {
		a.lag += late
	}
	next := l.now.Add(a.gap())
	expired := a.expire(&l, &next)
	a.admit()
	a.tire(&l, &next)
	if a.runs = len(a.there)+len(a.turns) > 0; a.runs {
		a.due = l.now.Add(max(time.Millisecond, next.Sub(l.now)))
		a.timer.Reset(time.Until(a.due))
	}
	a.mu.Unlock()
	for _, answer := range expired {
		answer()
	}
}

// expire frees the places of calls at the store whose time is over, and returns functions that answer them. The caller holds mu.
func (a *admission) expire(l *look, next *time.Time) (answers []func()) {
	for c := range a.there {
		end, _ := a.end(c, l)
		switch callers := end.Add(-c.spent); {
		case l.now.Before(callers):
			end = callers
		case l.now.Before(end): // the store still gets its whole budget
			c.answer(outcome{err: &sash.StoreError{Err: a.g.budgetError()}, failed: true, pending: c})
		case l.late && !c.extended:
			c.extended, end = true, *next
		default:
			a.follow(c, l.now, false, false)
			delete(a.there, c)
			here, others, lagged := a.here(c, l), a.heard.After(c.went), a.lag-c.lag >= a.gap()
			answers = append(answers, func() { c.answer(a.g.expire(c, here, others, lagged)) })
			continue
		}
		if end.Before(*next) {
			*next = end
		}
	}
	return answers
}

// tire ends waits for a turn that take too long. The caller holds mu.
func (a *admission) tire(l *look, next *time.Time) {
	down := a.of.now() != Up
	turns := a.turns[:0]
	for _, q := range a.turns {
		kept := q.calls[:0]
		for _, c := range q.calls {
			end, why := a.end(c, l)
			switch {
			case c.gone:
			case down:
				c.turn <- &sash.StoreError{Err: ErrBusy}
			case !l.now.Before(end):
				c.turn <- why
			default:
				kept = append(kept, c)
				if end.Before(*next) {
					*next = end
				}
			}
		}
		clear(q.calls[len(kept):])
		if q.calls = kept; len(kept) > 0 {
			turns = append(turns, q)
		} else {
			delete(a.queues, q.client)
		}
	}
	clear(a.turns[len(turns):])
	a.turns = turns
}

// here reports whether a call still waits in this process: the store has waited for less than a budget, give or take a step and our lag.
func (a *admission) here(c *call, l *look) bool { return l.waits < a.g.budget-a.gap()+a.lag-c.lag }

// end returns when the time of a call is over, and the error if that comes before its turn. Once the store has answered nothing for the
// call's patience, the failure mode answers. While the store answers other calls, the call may wait longer behind them. The caller
// holds mu.
func (a *admission) end(c *call, l *look) (end time.Time, why error) {
	budget, began, most, last := a.g.budget, c.went, c.patience, longest(c.patience)
	waits := began.IsZero()
	if waits {
		began, most = c.began, max(longestWait, longest(budget), c.patience)
		last = most
	}
	since, span := began, min(c.patience, silentBudgets*budget)
	if a.of.now() != Up {
		span = budget
	} else if waits || c.patience > budget {
		answered := a.heard
		if len(a.there) == 0 { // calls of other parts hold all places
			answered = a.g.start.Add(time.Duration(a.g.heard.Load()))
		}
		for _, at := range [...]time.Time{answered, a.asked} {
			if at.After(since) {
				since = at
			}
		}
	}
	why = &sash.StoreError{Err: ErrBusy}
	spent := min(since.Sub(began)+span, most) + a.lag - c.lag
	if here := a.here(c, l); here || l.behind || spent >= last {
		spent = last
		if here || since != began {
			why = ErrOverload
		}
	}
	return began.Add(spent), why
}

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
