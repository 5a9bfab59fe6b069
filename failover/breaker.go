package failover

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A State is the state of a breaker.
type State uint8

// The states.
const (
	Up      State = iota // calls go to the store
	Down                 // the store failed and gets no calls
	Probing              // one call tests whether the store is back
)

// String returns "up", "down" or "probing".
func (s State) String() string { return [...]string{Up: "up", Down: "down", Probing: "probing"}[s] }

// How long the breaker stays open. A pause is cut at random to between half and all of it, so that processes do not return together.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// A breaker keeps calls away from a failing store.
//
//	Up --failures: see run--> Down --pause over, next call--> Probing --answer--> Up
//	                            ^                                 |
//	                            +------ failure: longer pause ----+
//
// The pause doubles with each failed probe, up to longestPause. A probe that never reports counts as failed after the
// patience, the longest time that a budget can last. No timer runs for it.
type breaker struct {
	blip     time.Duration // for which the store may fail
	patience time.Duration // the time after which a probe without an answer has failed
	onChange func(State, error)
	random   func() float64 // called under mu
	entry    admission      // of calls on the part

	state   atomic.Uint32 // a State; written under mu
	epoch   atomic.Uint64 // counts the probes; written under mu
	answers atomic.Int64  // counts answers of the store
	probed  atomic.Int64  // answers at the time of the last Probe

	mu    sync.Mutex
	run   run           // guarded by mu: failures while Up
	pause time.Duration // guarded by mu: the last pause; 0 while Up
	until time.Time     // guarded by mu: end of the pause, or of the probe's patience
	cause error         // guarded by mu: why calls do not go to the store
}

// A ticket is the epoch in which a call entered. Each probe begins an epoch. The outcome of a call from an earlier epoch says nothing
// about the store as it is now.
type ticket uint64

func (b *breaker) init(blip, budget time.Duration, onChange func(State, error)) {
	b.blip, b.patience, b.onChange, b.random = blip, longest(budget), onChange, rand.Float64
}

// idle reports whether Probe has to call the store, because it is not up or has not answered since the last Probe.
func (b *breaker) idle() bool {
	answers := b.answers.Load()
	return b.probed.Swap(answers) == answers || b.now() != Up
}

func (b *breaker) now() State { return State(b.state.Load()) }

// change runs f, which reports whether it changed the state, and notifies the user.
func (b *breaker) change(f func() bool) {
	b.mu.Lock()
	changed := f()
	now, cause := b.now(), b.cause
	b.mu.Unlock()
	if changed && b.onChange != nil {
		safely(func() { b.onChange(now, cause) })
	}
}

// enter admits a call to the store, or returns an error that is ErrUnavailable and ErrDown.
func (b *breaker) enter() (t ticket, err error) {
	if t = ticket(b.epoch.Load()); b.now() == Up { // in this order, so that the epoch is not that of a later probe
		return t, nil
	}
	b.change(func() bool {
		now := time.Now()
		if b.now() == Probing && !now.Before(b.until) {
			b.fall(b.until)
		}
		switch {
		case b.now() == Up:
			t = ticket(b.epoch.Load())
			return false
		case b.now() == Probing || now.Before(b.until):
			err = b.cause
			return false
		}
		b.until = now.Add(b.patience)
		t = ticket(b.epoch.Add(1))
		b.state.Store(uint32(Probing))
		return true
	})
	return t, err
}

func (b *breaker) succeed(t ticket) {
	b.answers.Add(1)
	if b.now() == Up {
		return
	}
	b.change(func() bool {
		back := b.mine(t)
		if back {
			b.pause, b.cause = 0, nil
			b.run = run{began: time.Now().Add(-b.blip), before: b.answers.Load()}
			b.state.Store(uint32(Up))
		}
		return back
	})
}

// fail records a failure. lagged says that this process had no processor for a while, so that the failure may be its own.
func (b *breaker) fail(t ticket, err error, lagged bool) {
	b.change(func() bool {
		down := b.mine(t)
		if b.now() == Up && t.of(b) {
			down = b.run.fail(b.blip, time.Now(), b.answers.Load(), lagged)
		}
		if down {
			b.cause = &sash.StoreError{Err: fmt.Errorf("%w: %w", ErrDown, err)}
			b.fall(time.Now())
		}
		return down
	})
}

// crowd records a call that got no place within its budget. That is a failure if the store has failed before and not answered since.
func (b *breaker) crowd(t ticket) {
	b.mu.Lock()
	silent := b.run.failures > 0 && b.answers.Load() == b.run.before
	b.mu.Unlock()
	if silent {
		b.fail(t, ErrBusy, false)
	}
}

// skip records a call that did not show whether the store works: the next call may probe instead.
func (b *breaker) skip(t ticket) {
	if b.now() == Up {
		return
	}
	b.change(func() bool {
		mine := b.mine(t)
		if mine {
			b.until = time.Now()
			b.state.Store(uint32(Down))
		}
		return mine
	})
}

// mine reports whether a ticket belongs to the current probe. The caller holds mu.
func (b *breaker) mine(t ticket) bool { return b.now() == Probing && t.of(b) }

func (t ticket) of(b *breaker) bool { return uint64(t) == b.epoch.Load() }

// fall begins a pause. The caller holds mu.
func (b *breaker) fall(from time.Time) {
	b.pause = min(longestPause, max(firstPause, 2*b.pause))
	b.until = from.Add(b.cut(b.pause))
	b.state.Store(uint32(Down))
}

// ready returns the time until enter admits a call, but at least half of a pause.
func (b *breaker) ready(pause time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := b.cut(pause)
	if b.now() != Up {
		wait = max(wait, time.Until(b.until))
	}
	return wait
}

// cut cuts a pause at random to between half and all of its length. The caller holds mu.
func (b *breaker) cut(pause time.Duration) time.Duration {
	return pause/2 + time.Duration(b.random()*float64(pause/2))
}

func (g *guard) divide(o *Options) {
	n := 1
	if o.Part != nil && o.Parts > 1 {
		n, g.partOf = o.Parts, o.Part
	}
	onChange := o.OnChange
	if onChange != nil && n > 1 {
		onChange = func(_ State, why error) {
			now, cause := g.now() // this part may be back while another is not
			if cause = cmp.Or(why, cause); cause == nil || now == Up {
				now, cause = Up, nil
			}
			o.OnChange(now, cause)
		}
	}
	g.breakers = make([]breaker, n)
	for i := range g.breakers {
		g.breakers[i].init(o.Blip, o.Budget, onChange)
		g.breakers[i].entry.init(&g.breakers[i], g)
	}
}

func (g *guard) part(req driver.Request) *breaker { return &g.breakers[g.index(req.Key, req.Policy)] }

func (g *guard) owed(key string, policy *driver.Policy) *backlog {
	return &g.local.backlogs[g.index(key, policy)]
}

func (g *guard) index(key string, policy *driver.Policy) uint {
	if g.partOf == nil {
		return 0
	}
	return uint(g.partOf(key, policy)) % uint(len(g.breakers))
}

// now returns the state of all parts together, and why a part gets no calls.
func (g *guard) now() (now State, cause error) {
	for i := range g.breakers {
		b := &g.breakers[i]
		b.mu.Lock()
		cause = cmp.Or(cause, b.cause)
		if at := b.now(); at == Down || now == Up {
			now = at
		}
		b.mu.Unlock()
	}
	return now, cause
}

const (
	fewestFailures = 5           // in all
	fewestCalls    = 20          // in a run with answers, of which half must fail
	longestRun     = time.Second // if there are answers in between
	blipsIfLagged  = 5           // the length of Blip for a failure while this process lagged
)

// A run is a series of failures that may take the store down. It begins with a failure and lasts a second, or until the next
// answer if that takes longer. The store goes down at the failure of a run that is
//
//   - at least the fifth, and at least Blip after the first, and
//   - either the store gave no answer in the run, or the run has at least 20 calls and at least half of them failed.
//
// So a store is down Budget + Blip after it began to hang, or at the fifth call if that comes later. A store that stalls for less time
// stays up, and the failure mode answers only the calls that were late. If this process had no processor for a fifth of the budget or
// longer, the failure may be its own, and Blip is five times as long. The first run of a store that has come back needs no Blip: it
// begins with the answer to the probe.
type run struct {
	failures int64
	began    time.Time
	before   int64 // answers of the store before the run
}

// fail adds a failure and reports whether it takes the store down. answers counts all answers of the store.
func (r *run) fail(blip time.Duration, now time.Time, answers int64, lagged bool) bool {
	if r.began.IsZero() || answers > r.before && now.Sub(r.began) > longestRun {
		*r = run{began: now, before: answers}
	}
	r.failures++
	if lagged {
		blip *= blipsIfLagged
	}
	if r.failures < fewestFailures || now.Sub(r.began) < blip {
		return false
	}
	calls := r.failures + answers - r.before
	return calls == r.failures || calls >= fewestCalls && 2*r.failures >= calls
}

// A Kind is a kind of failure.
type Kind uint8

// The kinds of failure.
const (
	Unknown       Kind = iota // the store failed and may have charged the call
	Unsent                    // the store failed and did not charge the call
	Misconfigured             // the store rejected the call, such as for a wrong password, and did not charge it
	Rejected                  // the store works and rejected only this call; no failure mode answers
)

// String returns "unknown", "unsent", "misconfigured" or "rejected".
func (k Kind) String() string {
	return [...]string{Unknown: "unknown", Unsent: "unsent", Misconfigured: "misconfigured", Rejected: "rejected"}[k]
}

// ClassifyBy returns an Options.Classify made of two functions of a store's package. For Redis:
//
//	Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
//
// An error that is not uncharged is Unknown, even if it is misconfigured: a script may lack the permission for its second write only.
func ClassifyBy(uncharged, misconfigured func(error) bool) func(error) Kind {
	return func(err error) Kind {
		switch {
		case !uncharged(err):
			return Unknown
		case misconfigured(err):
			return Misconfigured
		}
		return Unsent
	}
}
