package failover

import (
	"context"
	"sync"
	"time"
)

// An until is the context of a call on the store: it has the values of the caller's context and ends when its owner
// cancels it, which is at the deadline at the latest, because the watch of the call ends by then. It needs no timer, and
// a store that never asks for its end costs it nothing else.
type until struct {
	values   context.Context // never ends
	deadline time.Time

	mu    sync.Mutex
	ended bool               // guarded by mu
	inner context.Context    // guarded by mu: nil until somebody asks for the end
	stop  context.CancelFunc // guarded by mu: of inner
}

// cancel ends the context.
func (u *until) cancel() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended = true; u.stop != nil {
		u.stop()
	}
}

// whole returns a context of the standard library that ends with this one.
func (u *until) whole() context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inner == nil {
		u.inner, u.stop = context.WithCancel(u.values)
		if u.ended {
			u.stop()
		}
	}
	return u.inner
}

// Deadline is of context.Context.
func (u *until) Deadline() (time.Time, bool) { return u.deadline, true }

// Done is of context.Context.
func (u *until) Done() <-chan struct{} { return u.whole().Done() }

// Err is of context.Context.
func (u *until) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return context.Canceled
	}
	return nil
}

// Value is of context.Context. The standard library finds inner by it, and so needs no goroutine for a context that is
// derived from this one.
func (u *until) Value(key any) any {
	u.mu.Lock()
	inner := u.inner
	u.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return u.values.Value(key)
}
