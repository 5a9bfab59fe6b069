package sash

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses between two looks at the store for a slot that another process may have released.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// A process leaves slots that it releases to the others for restShare of the time, and after at most mostRests of its
// releases: see [lines.rest].
const (
	restShare = 1.0 / 64
	mostRests = 1.0 / 4
)

// Wait takes a slot as soon as one is free. Those that wait through one Concurrency stand in line for each key, and get
// slots in the order in which they came. Only the first asks the store, at once when a slot of this Concurrency is
// released; so share one Concurrency in a process. It finds slots that other processes release by asking again: about
// a hundred times a second while slots are taken often, about once a second when the newest has been held for that long,
// and when the one that is held longest becomes free by itself. Between processes there is no order, but none keeps
// another out for ever: for a sixty-fourth of the time, a process with a line leaves what it releases to the others. So
// slots that are held for half a second can be kept from another process for half a minute, on average.
//
// When the context's deadline comes first the error is a [*LimitedError] that is also
// context.DeadlineExceeded, unless the store has never answered; when the context is canceled, the context's
// error. Other errors are those of Start. If the store fails, each in line asks for itself.
func (c *Concurrency) Wait(ctx context.Context, key string) (*Slot, error) {
	full, err := c.limiter.ready(ctx, key)
	if err != nil {
		return nil, err
	}
	var slot, refused *Slot
	err = c.limiter.lines.wait(ctx, key, full, &waiter{cost: 1, policy: c.limiter.policy, hold: c.hold}, func() (Result, error) {
		var err error
		if slot, err = c.Start(ctx, key); err != nil {
			return Result{}, err
		}
		if !slot.Allowed() {
			refused = slot
		}
		return slot.Result(), nil
	})
	var limited *LimitedError
	switch {
	case err == nil:
		return slot, nil
	case errors.As(err, &limited):
		limited.AtOnce = true
	case refused != nil && errors.Is(err, context.DeadlineExceeded):
		return nil, tooMany(key, refused, context.DeadlineExceeded)
	}
	return nil, err
}

// A slotLine is what a line whose callers wait for slots has beside others: when it looks at the store.
type slotLine struct {
	looks time.Duration // the longest time between two looks of any process
	next  time.Duration // that until the next look of this one
	rests time.Time     // until when it does not look, whatever is released
}

// answered notes an answer. A line looks again after about as long as the newest slot has been held: so slots that are
// taken and released quickly are found quickly, and a long wait costs the store little. The time is cut at random, so
// that processes do not look in step.
func (s *slotLine) answered(res *Result, hold time.Duration) {
	s.looks = min(max(hold-res.ResetAfter, firstPause), longestPause)
	s.next = s.looks/2 + rand.N(s.looks/2)
}

// pause returns how long after an answer the line looks again.
func (s *slotLine) pause(last *Result) time.Duration {
	switch {
	case !last.Allowed:
		return min(s.next, max(last.RetryAfter, leastWait))
	case last.Remaining > 0:
		return 0
	}
	return s.next
}

// rest is called before a process gives back one of n slots of a key, which it held for a time, and wakes the first of its
// line.
//
// Other processes have to find the slot, so this one, which takes it at once, could keep them out for as long as it has a
// line. So now and then, for restShare of the time, the line rests for as long as the others wait between two looks. The
// lot decides, so that there is nothing to remember: n slots are released n times in the time for which one is held.
func (q *lines) rest(key string, n int64, held time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	if l == nil || l.slots.looks == 0 {
		return
	}
	share := restShare * float64(held) / float64(l.slots.looks) / float64(n)
	if rand.Float64() < min(share, mostRests) {
		l.slots.rests = time.Now().Add(l.slots.looks)
	}
}
