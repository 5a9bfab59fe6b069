package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// An outcome is the result of one call on the store.
type outcome[T any] struct {
	value  T
	err    error // if failed, an ErrUnavailable with the cause
	failed bool  // the failure mode answers
	kind   Kind  // of the failure
	late   *attempt[T]
}

// An attempt is a call that the store works on, perhaps for longer than any caller waits.
type attempt[T any] struct {
	guard   *guard
	ctx     until          // of the call, for a store that heeds it
	started driver.Started // how to leave it; nil if a goroutine makes the call
	own     func(T) bool   // whether the answer is the store's own; nil means always
	done    chan struct{}  // closed when value and err are set
	value   T
	err     error

	mu   sync.Mutex
	over bool             // guarded by mu
	then []func(T, error) // guarded by mu: called at the end if the caller has left
}

// ends calls f with the result of the attempt when it ends, or at once if it is over.
func (a *attempt[T]) ends(f func(T, error)) {
	a.mu.Lock()
	over := a.over
	if !over {
		a.then = append(a.then, f)
	}
	a.mu.Unlock()
	if over {
		f(a.value, a.err)
	}
}

// An until is the context of a call on the store. It has the values of the caller's context, and ends when the watch of the
// call does: at the deadline, or a little later if this process runs late. So its error is never context.DeadlineExceeded.
type until struct {
	context.Context
	cancel   context.CancelFunc
	deadline time.Time
}

// Deadline is of context.Context.
func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// end is called when the store works on the call no more. Only the first time counts.
func (a *attempt[T]) end(value T, err error) {
	a.mu.Lock()
	again, then := a.over, a.then
	if !again {
		a.value, a.err, a.over = value, err, true
	}
	a.mu.Unlock()
	if again {
		return
	}
	<-a.guard.slots
	close(a.done)
	for _, f := range then {
		f(value, err)
	}
	a.ctx.cancel()
}

// A start has the store make a call without a goroutine of this package: see driver.Starter. If it is nil or returns nil, a
// goroutine makes the call.
type start[T any] func(ctx context.Context, done func(T, error)) driver.Started

// begin starts the call, and reports whether that is done.
func (a *attempt[T]) begin(start start[T]) bool {
	if start == nil {
		return false
	}
	_, err := attend(a.ctx, func(ctx context.Context) (none T, err error) {
		a.started = start(ctx, a.end)
		return none, nil
	})
	if err != nil { // it panicked
		var none T
		a.end(none, err)
	}
	return a.started != nil || err != nil
}

// leave ends the call as far as the store lets it.
func (a *attempt[T]) leave() {
	a.ctx.cancel()
	if a.started == nil {
		return
	}
	_, err := attend(a.ctx, func(context.Context) (none T, err error) {
		a.started.Leave()
		return none, nil
	})
	if err != nil { // it panicked
		a.guard.report(err, Unknown)
	}
}

// ask runs a call on the store. It uses a goroutine, so that the caller has its answer within the budget even if the
// store ignores its context. The store gets the whole budget even if the caller's deadline is earlier: otherwise
// callers with less time than the budget would never find that it is down. b is the breaker of the call's part of the
// store. Answers for which own is false, such as those of a cache, do not count for the store's health.
func ask[T any](ctx context.Context, g *guard, b *breaker, own func(T) bool, f func(context.Context) (T, error)) outcome[T] {
	return askWith(ctx, g, b, g.budget, true, own, nil, f)
}

// How many budgets a call can take that is ready to wait for its turn: as long as the store answers others, and while it
// answers none. It may be no more than crowded.
const (
	patientBudgets = 100
	silentBudgets  = 20
)

// patience returns how long a call can take that may start within a time from now.
func (g *guard) patience(within int64) time.Duration {
	return max(g.budget, min(time.Duration(within)*time.Microsecond, patientBudgets*g.budget))
}

// watchFor starts a watch over what is left of a call's patience, or as long of it as the store may be silent.
func (g *guard) watchFor(b *breaker, left time.Duration) *watch {
	w := g.watch(min(left, silentBudgets*g.budget))
	if left > g.budget {
		w.over = func() bool { return b.now() != Up }
	}
	return w
}

// persist waits on a watch, and begins it anew as long as the patience lasts and the store answers others.
func (g *guard) persist(b *breaker, w *watch, patience time.Duration, done, left <-chan struct{}) {
	end := time.Now().Add(patience)
	for answers := b.answers.Load(); ; {
		w.wait(done, left)
		others, rest := b.answers.Load(), time.Until(end)
		if w.steps > 0 || others == answers || rest < g.budget || b.now() != Up {
			return
		}
		answers = others
		w.begin(min(rest, silentBudgets*g.budget))
	}
}

// askWith is ask, for a call with a patience of its own. A call that waits queues for a place if there is none; writes of local admissions leave it to callers. A
// store that starts the call takes no goroutine.
func askWith[T any](ctx context.Context, g *guard, b *breaker, patience time.Duration, waits bool, own func(T) bool,
	start start[T], f func(context.Context) (T, error)) outcome[T] {
	if err := ctx.Err(); err != nil { // the caller has left: charge nothing
		return outcome[T]{err: err}
	}
	t, waited, err := g.admit(ctx, b, patience, waits)
	switch {
	case err != nil && ctx.Err() != nil: // the caller left while it waited
		return outcome[T]{err: err}
	case err != nil:
		return outcome[T]{err: err, failed: true, kind: Unsent}
	}
	of, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt[T]{guard: g, own: own, done: make(chan struct{}), ctx: until{Context: of, cancel: cancel, deadline: time.Now().Add(longest(patience))}}
	if !a.begin(start) {
		go func() { a.end(attend(a.ctx, f)) }()
	}
	w := g.watchFor(b, patience-waited)
	g.persist(b, w, patience-waited, a.done, ctx.Done())
	select {
	case <-a.done:
	default:
		err := ctx.Err()
		if err == nil && waited == 0 {
			break
		}
		go func() { // only the rest of the budget shows whether the store works
			w.wait(a.done, nil)
			w.extend(g, waited, a.done)
			after(g, b, a, t, w)
		}()
		if err != nil { // the caller left
			return outcome[T]{err: err}
		}
		return outcome[T]{err: &sash.StoreError{Err: g.late()}, failed: true, late: a}
	}
	w.timer.Stop()
	return after(g, b, a, t, w)
}

// admit takes a place among the calls under way and asks the breaker. While the store is up a call that waits does so one
// after the other and within the budget; waited is for how long it did. If err is nil the caller has to empty the place.
func (g *guard) admit(ctx context.Context, b *breaker, patience time.Duration, waits bool) (t ticket, waited time.Duration, err error) {
	select {
	case g.slots <- struct{}{}:
	default:
		if !waits || b.now() != Up {
			return ticket{}, 0, &sash.StoreError{Err: ErrBusy}
		}
		if waited, err = g.queue(ctx, b, patience); err != nil {
			return ticket{}, 0, err
		}
	}
	if t, err = g.enter(b); err != nil {
		<-g.slots
	}
	return t, waited, err
}

// queue waits for a place, and takes it. It returns how much of the budget that took.
func (g *guard) queue(ctx context.Context, b *breaker, patience time.Duration) (time.Duration, error) {
	began, t := time.Now(), ticket{epoch: b.epoch.Load()}
	w, settled, over := g.watchFor(b, patience), make(chan struct{}), make(chan struct{})
	go func() { // this one keeps its turn while that one wakes
		g.persist(b, w, patience, settled, nil)
		close(over)
	}()
	var err error
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	case <-over:
		err = &sash.StoreError{Err: ErrBusy}
	}
	close(settled)
	<-over
	w.timer.Stop()
	if errors.Is(err, ErrBusy) {
		b.crowd(t, w.wasLate())
	}
	return min(time.Since(began)-w.late, patience), err
}

// attend calls f and turns a panic of the store into an error: in this goroutine no caller could recover it, and it
// would end the process.
func attend[T any](ctx context.Context, f func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &sash.StoreError{Err: fmt.Errorf("failover: the store panicked: %v", p)}
		}
	}()
	return f(ctx)
}

// after returns the outcome of a call when the store has answered or the budget is over.
func after[T any](g *guard, b *breaker, a *attempt[T], t ticket, w *watch) outcome[T] {
	select {
	case <-a.done:
		return judge(g, b, a, t, w)
	default:
	}
	err := g.late()
	a.leave()
	b.fail(t, err, w.wasLate())
	g.report(err, Unknown)
	return outcome[T]{err: &sash.StoreError{Err: err}, failed: true, late: a}
}

// late returns ErrBudget, with the servers that are silent. One that answers every call has owed none for half of the
// budget.
func (g *guard) late() error {
	if servers := driver.Silent(g.store, g.budget/2); servers != "" {
		return fmt.Errorf("%w: %s", ErrBudget, servers)
	}
	return ErrBudget
}

// judge returns whether the store answered or failed.
func judge[T any](g *guard, b *breaker, a *attempt[T], t ticket, w *watch) outcome[T] {
	switch {
	case a.err == nil && (a.own == nil || a.own(a.value)):
		b.succeed(t)
		return outcome[T]{value: a.value}
	case a.err == nil, answers(a.err):
		b.skip(t)
		return outcome[T]{value: a.value, err: a.err}
	}
	err, kind := a.err, g.kind(a.err)
	if kind == Rejected { // it works
		b.succeed(t)
		g.report(err, kind)
		return outcome[T]{err: err}
	}
	switch { // a wrapped error must not look like the caller's context ending
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w (%v)", g.late(), err)
	case errors.Is(err, context.Canceled):
		err = errors.New(err.Error())
	}
	b.fail(t, err, w.wasLate())
	g.report(err, kind)
	return outcome[T]{err: &sash.StoreError{Err: err}, failed: true, kind: kind, late: a}
}

// decided reports whether the store itself decided, which shows that it works.
func decided(res driver.Answer) bool { return res.Source == driver.FromStore }

// answers reports whether an error is about the call rather than the store's health.
func answers(err error) bool {
	about := []error{driver.ErrUnsupported, driver.ErrApart, sash.ErrInvalidLimit, sash.ErrInvalidCost, sash.ErrInvalidKey, sash.ErrCostAboveLimit}
	return slices.ContainsFunc(about, func(about error) bool { return errors.Is(err, about) })
}

// kind returns the kind of failure of an error.
func (g *guard) kind(err error) Kind {
	var op *net.OpError
	switch {
	case errors.Is(err, driver.ErrRejected):
		return Rejected
	case errors.As(err, &op) && op.Op == "dial":
		return Unsent
	}
	kind := Unknown
	safely(func() { kind = g.classify(err) })
	return kind
}

func (g *guard) report(err error, kind Kind) {
	if g.onError != nil {
		safely(func() { g.onError(err, kind) })
	}
}

// safely calls a function of the user and drops a panic: it can run in a goroutine that no caller is on.
func safely(f func()) {
	defer func() { _ = recover() }()
	f()
}
