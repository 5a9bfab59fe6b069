package failover

import (
	"context"
	"sync"
	"time"
)

// An until is the context of a call on the store: it has the values of the caller's context and ends when its owner
// cancels it. That is when the watch of the call ends: by the deadline, or a little later if this process runs late, and so
// its error is never context.DeadlineExceeded. It needs no timer, and no channel unless the store asks for its end.
type until struct {
	context.Context // the values; never ends
	deadline        time.Time

	mu    sync.Mutex
	ended bool          // guarded by mu
	done  chan struct{} // guarded by mu: nil until somebody asks for it
}

// cancel ends the context.
func (u *until) cancel() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended && u.done != nil {
		close(u.done)
	}
	u.ended = true
}

// Deadline is of context.Context.
func (u *until) Deadline() (time.Time, bool) { return u.deadline, true }

// Done is of context.Context.
func (u *until) Done() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done == nil {
		u.done = make(chan struct{})
		if u.ended {
			close(u.done)
		}
	}
	return u.done
}

// Err is of context.Context.
func (u *until) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return context.Canceled
	}
	return nil
}
