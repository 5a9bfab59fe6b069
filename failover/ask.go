package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// fromStore reports whether the store itself carried out a batch, which shows that it works. A cache in front of it may have answered.
func fromStore(b *driver.Batch) bool {
	op := &b.Ops[b.Chosen]
	return op.Kind != driver.Charge || op.Answer.Source == driver.FromStore
}

type question struct {
	breaker  *breaker          // of the call's part of the store
	patience time.Duration     // the longest time that its caller waits
	yields   bool              // it does not wait for a place among the calls under way: callers go first
	batch    *driver.Batch     // nobody else uses it until the call is over, which may be later than the caller waits
	after    []<-chan struct{} // closed before the call may begin
}

type outcome struct {
	batch   *driver.Batch // as the store has carried it out, unless there is an error
	err     error         // if failed, an ErrUnavailable with the cause
	failed  bool          // the failure mode answers
	kind    Kind          // of the failure
	pending *attempt      // the call, which may still end
}

// An attempt is a call that the store works on, perhaps for longer than any caller waits.
type attempt struct {
	ctx   until         // of the call, for a store that heeds it
	done  chan struct{} // closed when what the store returned is set
	batch *driver.Batch
	err   error

	entry *admission
	began time.Time
	left  atomic.Bool // its place among those at the store is free
}

// An until is the context of a call on the store: the caller's values, and the end of the call's watch, which may be later than
// the deadline if this process runs late. So its error is never context.DeadlineExceeded.
type until struct {
	context.Context
	cancel   context.CancelFunc
	deadline time.Time
}

// Deadline is of context.Context.
func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// begin makes a call in a goroutine, so that the caller has its answer in time even if the store ignores its context.
func (g *guard) begin(ctx context.Context, q *question) *attempt {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	now := time.Now()
	a := &attempt{
		done: make(chan struct{}), ctx: until{ctx, cancel, now.Add(longest(q.patience))}, batch: q.batch, entry: &q.breaker.entry, began: now,
	}
	go func() {
		a.err = g.attend(a.ctx, q)
		g.inFlight.Add(-1)
		a.leave(a.err == nil || errors.Is(a.err, driver.ErrRejected), a.err != nil || fromStore(a.batch))
		close(a.done)
		cancel()
	}()
	return a
}

func (a *attempt) leave(answered, fromStore bool) {
	if a.left.CompareAndSwap(false, true) {
		a.entry.leave(a.began, answered, fromStore)
	}
}

func (a *attempt) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// ends calls f with the result of the attempt when it ends, in a goroutine of its own, or at once if it is over.
func (a *attempt) ends(f func(*driver.Batch, error)) {
	if a.over() {
		f(a.batch, a.err)
		return
	}
	go func() {
		<-a.done
		f(a.batch, a.err)
	}()
}

// attend has the store carry out a batch, and turns a panic into an error: in this goroutine it would end the process.
func (g *guard) attend(ctx context.Context, q *question) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &sash.StoreError{Err: fmt.Errorf("failover: the store panicked: %v", p)}
		}
	}()
	for _, over := range q.after {
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b := q.batch
	err = g.store.Do(ctx, b)
	if chosen := b.Chosen; chosen < 0 || chosen >= len(b.Ops) {
		b.Chosen = 0
		err = cmp.Or(err, fmt.Errorf("failover: the store chose operation %d of %d", chosen, len(b.Ops)))
	}
	return err
}

// ask asks the store. The store gets the whole budget even if the caller's deadline is earlier: otherwise callers with less
// time than the budget would never find that it is down.
func (g *guard) ask(ctx context.Context, q question) outcome {
	if err := ctx.Err(); err != nil { // the caller has left: charge nothing
		return outcome{err: err}
	}
	t, waited, err := g.admit(ctx, &q)
	switch {
	case err != nil && ctx.Err() != nil, errors.Is(err, ErrOverload): // the caller left, or this process has too many
		return outcome{err: err}
	case err != nil:
		return outcome{err: err, failed: true, kind: Unsent}
	}
	a := g.begin(ctx, &q)
	w := g.watch(q.breaker, q.patience-waited)
	w.persist(q.patience-waited, a.done, ctx.Done())
	if err = ctx.Err(); a.over() || err == nil && waited == 0 {
		w.timer.Stop()
		return g.judge(q.breaker, a, t, w)
	}
	go func() { // only the rest of the budget shows whether the store works
		w.wait(a.done, nil)
		w.patient = false
		w.begin(waited)
		w.wait(a.done, nil)
		g.judge(q.breaker, a, t, w)
	}()
	if err != nil { // the caller left
		return outcome{err: err}
	}
	return outcome{err: &sash.StoreError{Err: g.budgetError()}, failed: true, pending: a}
}

// admit takes a place among the calls at the store and asks the breaker. While the store is up a call waits for its turn.
// waited is how long the store was silent meanwhile, which counts as a part of the budget.
func (g *guard) admit(ctx context.Context, q *question) (t ticket, waited time.Duration, err error) {
	b := q.breaker
	before := ticket(b.epoch.Load())
	waited, silent, err := b.entry.enter(ctx, q)
	if err == nil && g.inFlight.Add(1) > int64(g.most) { // with those whose budget is over
		g.inFlight.Add(-1)
		b.entry.leave(time.Now(), false, false)
		silent, err = true, &sash.StoreError{Err: ErrBusy}
	}
	if err != nil {
		if silent && b.now() == Up && errors.Is(err, ErrBusy) {
			b.crowd(before)
		}
		return 0, 0, err
	}
	if !silent {
		q.patience = min(q.patience, max(g.budget, q.patience-waited))
		waited = 0
	}
	if t, err = g.enter(b); err != nil {
		g.inFlight.Add(-1)
		b.entry.leave(time.Now(), false, false)
	}
	return t, min(waited, q.patience), err
}

// judge returns whether the store answered or failed, when it has answered or its time is over.
func (g *guard) judge(b *breaker, a *attempt, t ticket, w *watch) outcome {
	if !a.over() {
		a.leave(false, false)
		a.ctx.cancel()
		if w.here() { // it has not been at the store for as long as the budget
			b.skip(t)
			if a.entry.answered(a.began) {
				return outcome{err: fmt.Errorf("%w (%w)", ErrOverload, ErrBudget), pending: a}
			}
			return outcome{err: &sash.StoreError{Err: g.budgetError()}, failed: true, pending: a}
		}
		err := g.budgetError()
		b.fail(t, err, w.lagged())
		g.report(err, Unknown)
		return outcome{err: &sash.StoreError{Err: err}, failed: true, pending: a}
	}
	switch {
	case a.err == nil && fromStore(a.batch):
		b.succeed(t)
		return outcome{batch: a.batch}
	case a.err == nil, answers(a.err):
		b.skip(t)
		return outcome{batch: a.batch, err: a.err}
	}
	err, kind := a.err, g.kind(a.err)
	if kind == Rejected { // it works
		b.succeed(t)
		g.report(err, kind)
		return outcome{err: err}
	}
	switch { // a wrapped error must not look like the caller's context ending
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w (%v)", g.budgetError(), err)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%w: %v", io.ErrClosedPipe, err) // by the client
	}
	if counts(err, kind) {
		b.fail(t, err, w.lagged())
	} else {
		b.skip(t)
	}
	g.report(err, kind)
	return outcome{err: &sash.StoreError{Err: err}, failed: true, kind: kind, pending: a}
}

// budgetError returns ErrBudget with the names of silent servers: those that have owed an answer for at least half of the budget.
func (g *guard) budgetError() error {
	if g.witness != nil {
		if servers := g.witness.Silent(g.budget / 2); servers != "" {
			return fmt.Errorf("%w: %s", ErrBudget, servers)
		}
	}
	return ErrBudget
}

// answers reports whether an error is about the call rather than the store's health.
func answers(err error) bool {
	about := []error{driver.ErrUnsupported, driver.ErrApart, sash.ErrInvalidLimit, sash.ErrInvalidCost, sash.ErrInvalidKey, sash.ErrCostAboveLimit}
	return slices.ContainsFunc(about, func(about error) bool { return errors.Is(err, about) })
}

// counts reports whether an error shows that the store does not work, and so counts towards taking it down. The list is closed:
// no answer came in time, a connection failed, the store's package says that the store decided nothing or is misconfigured, or
// the store says that it is unavailable. Any other error is about its call, however often the call is repeated.
func counts(err error, kind Kind) bool {
	if kind == Unsent || kind == Misconfigured {
		return true
	}
	var network net.Error
	var system syscall.Errno
	return errors.As(err, &network) || errors.As(err, &system) || slices.ContainsFunc([]error{
		ErrBudget, sash.ErrUnavailable, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded,
	}, func(one error) bool { return errors.Is(err, one) })
}

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

// safely calls a function of the user and drops a panic, which no caller may be able to recover.
func safely(f func()) {
	defer func() { _ = recover() }()
	f()
}
