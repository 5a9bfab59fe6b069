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

// An outcome is what became of asking the store.
type outcome[T any] struct {
	value  T
	err    error // when failed, an ErrUnavailable that says why
	failed bool  // the policy answers
	kind   Kind  // of the failure
	late   *attempt[T]
}

// An attempt is a call that the store works on, maybe for longer than anybody waits.
type attempt[T any] struct {
	asked func(T) bool  // whether the store itself said so; nil means always
	done  chan struct{} // closed when value and err are there
	value T
	err   error

	mu   sync.Mutex
	over bool           // guarded by mu
	then func(T, error) // guarded by mu: told at the end, when the caller has left
}

// ends arranges for f to be told what became of the attempt, at once if it is over.
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

// ask runs a call on the store, in a goroutine so that the caller has its answer within the budget also
// when the store does not heed its context. The store has the whole budget, also when the caller's time is over
// earlier: otherwise callers with less time than the budget would never find out that it is down. The breaker is that
// of the call's part of the store. An answer that asked says is not the store's, such as one from a cache, tells
// nothing of its health.
func ask[T any](ctx context.Context, g *guard, b *breaker, asked func(T) bool, f func(context.Context) (T, error)) (out outcome[T]) {
	if err := ctx.Err(); err != nil { // nothing is charged for who is gone already
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
	a := &attempt[T]{asked: asked, done: make(chan struct{})}
	go func() {
		value, err := attend(timed, f)
		g.slots.Add(-1)
		a.finish(value, err)
		cancel() // after done is closed: who sees this looks there again
	}()
	select {
	case <-a.done:
	case <-ctx.Done():
	case <-timed.Done():
	}
	select {
	case <-a.done:
	default:
		if err := ctx.Err(); err != nil { // the caller's own end says nothing of the store; the rest of its time does
			context.AfterFunc(timed, func() { after(g, b, a, t) })
			return outcome[T]{err: err}
		}
	}
	return after(g, b, a, t)
}

// attend calls f. A store that panics has failed, whether or not it has charged: in a goroutine that is not
// the caller's, nobody else could stop the panic from ending the process.
func attend[T any](ctx context.Context, f func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &sash.StoreError{Err: fmt.Errorf("failover: the store panicked: %v", p)}
		}
	}()
	return f(ctx)
}

// after tells what became of a call when the store has answered or its time is over.
func after[T any](g *guard, b *breaker, a *attempt[T], t ticket) outcome[T] {
	select {
	case <-a.done:
		return judge(g, b, a, t)
	default:
	}
	b.fail(t, ErrBudget)
	g.tell(ErrBudget, Unknown)
	return outcome[T]{err: &sash.StoreError{Err: ErrBudget}, failed: true, late: a}
}

// judge tells apart a store that answered and one that failed.
func judge[T any](g *guard, b *breaker, a *attempt[T], t ticket) outcome[T] {
	if a.err == nil || answers(a.err) {
		if a.err == nil && (a.asked == nil || a.asked(a.value)) {
			b.succeed(t)
		} else {
			b.skip(t)
		}
		return outcome[T]{value: a.value, err: a.err}
	}
	err, kind := a.err, g.kind(a.err)
	switch { // what is wrapped must not pass for the caller's end
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w (%v)", ErrBudget, err)
	case errors.Is(err, context.Canceled):
		err = errors.New(err.Error())
	}
	b.fail(t, err)
	g.tell(err, kind)
	return outcome[T]{err: &sash.StoreError{Err: err}, failed: true, kind: kind, late: a}
}

// decided reports whether a result tells of the store's health.
func decided(res driver.Answer) bool { return res.Source == driver.FromStore }

// answers reports whether an error is about the call and not about the store's health.
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

// kind says what kind of failure an error is.
func (g *guard) kind(err error) Kind {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Unsent
	}
	return g.classify(err)
}

func (g *guard) tell(err error, kind Kind) {
	if g.onError != nil {
		g.onError(err, kind)
	}
}
