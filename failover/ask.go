package failover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

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
	own   func(T) bool  // whether the answer is the store's own; nil means always
	done  chan struct{} // closed when value and err are set
	value T
	err   error

	mu   sync.Mutex
	over bool           // guarded by mu
	then func(T, error) // guarded by mu: called at the end if the caller has left
}

// ends calls f with the result of the attempt when it ends, or at once if it is over.
func (a *attempt[T]) ends(f func(T, error)) {
	a.mu.Lock()
	over := a.over
	if !over {
		a.then = f
	}
	a.mu.Unlock()
	if over {
		f(a.value, a.err)
	}
}

func (a *attempt[T]) finish(value T, err error) {
	a.value, a.err = value, err
	a.mu.Lock()
	a.over = true
	then := a.then
	a.mu.Unlock()
	close(a.done)
	if then != nil {
		then(value, err)
	}
}

// ask runs a call on the store. It uses a goroutine, so that the caller has its answer within the budget even if the
// store ignores its context. The store gets the whole budget even if the caller's deadline is earlier: otherwise
// callers with less time than the budget would never find that it is down. b is the breaker of the call's part of the
// store. Answers for which own is false, such as those of a cache, do not count for the store's health.
func ask[T any](ctx context.Context, g *guard, b *breaker, own func(T) bool, f func(context.Context) (T, error)) (out outcome[T]) {
	if err := ctx.Err(); err != nil { // the caller has left: charge nothing
		return outcome[T]{err: err}
	}
	if g.slots.Add(1) > g.most {
		g.slots.Add(-1)
		return outcome[T]{err: &sash.StoreError{Err: ErrBusy}, failed: true, kind: Unsent}
	}
	t, err := g.enter(b)
	if err != nil {
		g.slots.Add(-1)
		return outcome[T]{err: err, failed: true, kind: Unsent}
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.budget)
	a := &attempt[T]{own: own, done: make(chan struct{})}
	go func() {
		value, err := attend(timed, f)
		g.slots.Add(-1)
		a.finish(value, err)
		cancel() // after done is closed, because waiters check done again
	}()
	select {
	case <-a.done:
	case <-ctx.Done():
	case <-timed.Done():
	}
	select {
	case <-a.done:
	default:
		if err := ctx.Err(); err != nil { // the caller left: only the rest of the budget shows whether the store works
			context.AfterFunc(timed, func() { after(g, b, a, t) })
			return outcome[T]{err: err}
		}
	}
	return after(g, b, a, t)
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
func after[T any](g *guard, b *breaker, a *attempt[T], t ticket) outcome[T] {
	select {
	case <-a.done:
		return judge(g, b, a, t)
	default:
	}
	err := g.late()
	b.fail(t, err)
	g.report(err, Unknown)
	return outcome[T]{err: &sash.StoreError{Err: err}, failed: true, late: a}
}

// late returns ErrBudget, with the servers that are silent. One that answers every call has owed none for half of the
// budget.
func (g *guard) late() error {
	if g.silent == nil {
		return ErrBudget
	}
	if servers := g.silent(g.budget / 2); servers != "" {
		return fmt.Errorf("%w: %s", ErrBudget, servers)
	}
	return ErrBudget
}

// judge returns whether the store answered or failed.
func judge[T any](g *guard, b *breaker, a *attempt[T], t ticket) outcome[T] {
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
	b.fail(t, err)
	g.report(err, kind)
	return outcome[T]{err: &sash.StoreError{Err: err}, failed: true, kind: kind, late: a}
}

// decided reports whether the store itself decided, which shows that it works.
func decided(res driver.Answer) bool { return res.Source == driver.FromStore }

// answers reports whether an error is about the call rather than the store's health.
func answers(err error) bool {
	for _, about := range [...]error{
		driver.ErrUnsupported, driver.ErrApart, sash.ErrInvalidLimit, sash.ErrInvalidCost,
		sash.ErrInvalidKey, sash.ErrCostAboveLimit,
	} {
		if errors.Is(err, about) {
			return true
		}
	}
	return false
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
	return g.classify(err)
}

func (g *guard) report(err error, kind Kind) {
	if g.onError != nil {
		g.onError(err, kind)
	}
}
