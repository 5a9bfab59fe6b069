package failover

import (
	"context"
	"sync"
	"time"

	"example.com/sash/driver"
)

// mostAhead is how many bookings of the store wait to be mirrored. Further ones are mirrored at once.
const mostAhead = 100_000

// upcoming are the bookings of the store that are mirrored when they start.
type upcoming struct {
	most   int // that wait
	mu     sync.Mutex
	timers map[*time.Timer]struct{} // guarded by mu
	closed bool                     // guarded by mu
}

// mirrorLater mirrors a booking when it starts. A local store dates charges as of now, so until then it does not count
// the booking, and a settlement does not change that.
func (l *local) mirrorLater(id string, req driver.Request, delay time.Duration) {
	mirror := func() {
		_, _ = attend(context.Background(), func(ctx context.Context) (struct{}, error) {
			l.mirror(ctx, id, req)
			return struct{}{}, nil
		})
	}
	if !l.ahead.after(delay, mirror) {
		mirror()
	}
}

// after calls f after a delay, unless it is closed before. It returns false if too many wait.
func (u *upcoming) after(delay time.Duration, f func()) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return true
	}
	if len(u.timers) >= u.most {
		return false
	}
	if u.timers == nil {
		u.timers = make(map[*time.Timer]struct{})
	}
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() {
		u.mu.Lock()
		delete(u.timers, timer)
		u.mu.Unlock()
		f()
	})
	u.timers[timer] = struct{}{}
	return true
}

// close forgets all that wait, and those that come.
func (u *upcoming) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for timer := range u.timers {
		timer.Stop()
	}
	u.timers = nil
}
