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

// A call waits for its turn, and then the store works on it, perhaps for longer than the caller waits. The call is also the context
// of that work. If this process runs late, the context ends later than its deadline. So its error is never
// context.DeadlineExceeded.
type call struct {
	breaker  *breaker          // of the call's part of the store
	patience time.Duration     // the longest time that its caller waits
	yields   bool              // it does not wait for its turn, because callers go first
	batch    *driver.Batch     // nobody else uses it until the call is over
	after    []<-chan struct{} // closed before the store gets the call

	context.Context // the caller's values
	cancel          context.CancelFunc
	ticket          ticket
	result          chan outcome // gets what the caller gets
	err             error        // of the store; set before the call is over

	place // in its part's admission, which guards it
}

type outcome struct {
	batch   *driver.Batch // as the store has carried it out, unless there is an error
	err     error         // if failed, an ErrUnavailable with the cause
	failed  bool          // the failure mode answers
	kind    Kind          // of the failure
	pending *call         // may still end
}

// Deadline is of context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.went.Add(longest(c.patience)), true }

// ask calls the store in a goroutine, so that the caller has its answer in time even if the store ignores its context. The store
// gets the whole budget even if the caller's deadline is earlier. Otherwise callers with less time than the budget would never
// show that the store is down.
func (g *guard) ask(ctx context.Context, c *call) outcome {
	if err := ctx.Err(); err != nil { // the caller has left: charge nothing
		return outcome{err: err}
	}
	c.result = make(chan outcome, 1)
	c.Context, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	switch err := g.admit(ctx, c); {
	case err != nil && ctx.Err() != nil, errors.Is(err, ErrOverload): // the caller left, or this process has too many calls
		return outcome{err: err}
	case err != nil:
		return outcome{err: err, failed: true, kind: Unsent}
	}
	go g.run(c)
	select {
	case out := <-c.result:
		return out
	case <-ctx.Done():
	}
	select {
	case out := <-c.result: // both came at the same time
		return out
	default:
		return outcome{err: ctx.Err()}
	}
}

// admit takes a place among the calls at the store and asks the breaker. While the store is up, admit waits for the call's turn.
func (g *guard) admit(ctx context.Context, c *call) error {
	b := c.breaker
	c.ticket = ticket(b.epoch.Load())
	silent, err := b.entry.enter(ctx, c)
	if err != nil {
		if silent && b.now() == Up && errors.Is(err, ErrBusy) {
			b.crowd(c.ticket)
		}
		return err
	}
	t, err := g.enter(b)
	if t != c.ticket || err != nil {
		b.entry.mu.Lock()
		defer b.entry.mu.Unlock()
		if c.ticket = t; err != nil {
			b.entry.free(c)
		}
	}
	return err
}

// run has the store carry out a call.
func (g *guard) run(c *call) {
	defer c.cancel()
	c.err = g.attend(c)
	answered := c.err == nil || errors.Is(c.err, driver.ErrRejected)
	inTime, then := c.breaker.entry.leave(c, answered, c.err != nil || fromStore(c.batch))
	if inTime {
		c.answer(g.judge(c))
	}
	for _, f := range then {
		f(c.batch, c.err)
	}
}

// answer sends the caller an outcome, unless it already has one.
func (c *call) answer(out outcome) {
	select {
	case c.result <- out:
	default:
	}
}

// ends calls f with the result of the call when the call ends, or at once if it has ended. A nil call has ended.
func (c *call) ends(f func(*driver.Batch, error)) {
	if c == nil {
		f(nil, nil)
		return
	}
	a := &c.breaker.entry
	a.mu.Lock()
	over := c.over
	if !over {
		c.then = append(c.then, f)
	}
	a.mu.Unlock()
	if over {
		f(c.batch, c.err)
	}
}

// attend has the store carry out a batch. It turns a panic of the store into an error, because a panic here would end the process.
func (g *guard) attend(c *call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &sash.StoreError{Err: fmt.Errorf("failover: the store panicked: %v", p)}
		}
	}()
	for _, over := range c.after {
		select {
		case <-over:
		case <-c.Done():
			return c.Err()
		}
	}
	b := c.batch
	err = g.store.Do(c, b)
	if chosen := b.Chosen; chosen < 0 || chosen >= len(b.Ops) {
		b.Chosen = 0
		err = cmp.Or(err, fmt.Errorf("failover: the store chose operation %d of %d", chosen, len(b.Ops)))
	}
	return err
}

// expire returns the outcome of a call whose time is over without an answer. here says that the call was not at the store for a whole
// budget, answers that the store answered other calls meanwhile, and lagged that this process may have caused the delay.
func (g *guard) expire(c *call, here, answers, lagged bool) outcome {
	c.cancel()
	err := g.budgetError()
	switch {
	case here && answers: // this process has too many calls
		c.breaker.skip(c.ticket)
		return outcome{err: fmt.Errorf("%w (%w)", ErrOverload, ErrBudget), pending: c}
	case here:
		c.breaker.skip(c.ticket)
	default:
		c.breaker.fail(c.ticket, err, lagged)
		g.report(err, Unknown)
	}
	return outcome{err: &sash.StoreError{Err: err}, failed: true, pending: c}
}

// judge returns the outcome of a call that has ended in time, and reports it to the breaker.
func (g *guard) judge(c *call) outcome {
	b, t, err := c.breaker, c.ticket, c.err
	switch {
	case err == nil && fromStore(c.batch):
		b.succeed(t)
		return outcome{batch: c.batch}
	case err == nil, answers(err):
		b.skip(t)
		return outcome{batch: c.batch, err: err}
	}
	kind := g.kind(err)
	if kind == Rejected { // the store works
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
		b.fail(t, err, b.entry.lagged(c))
	} else {
		b.skip(t)
	}
	g.report(err, kind)
	return outcome{err: &sash.StoreError{Err: err}, failed: true, kind: kind, pending: c}
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
