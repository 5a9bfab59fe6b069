package sash

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"example.com/sash/driver"
)

// The pauses between two looks at the store for a slot that another process may have released.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// The store admits others past a line whose turn it is passes times, or as often as slots are held for passTime together if
// that is more: until the line looks, the slot that is kept for it is idle.
const (
	passes     = 8
	mostPasses = 1000
	passTime   = passes * 2 * firstPause
)

// lateLook is how much later than it said a line may look without losing its place in the rota.
const lateLook = 100 * time.Millisecond

// Wait takes a slot as soon as one is free. Those that wait through one Concurrency stand in line for each key, and get
// slots in the order in which they came. A slot of this Concurrency that is released goes to the first of them in the call
// of the store that gives it back; so share one Concurrency in a process. Only the first asks the store, for slots that
// other processes release: about a hundred times a second while slots are taken often, about once a second when the
// newest has been held for that long, and when the one that is held longest becomes free by itself.
//
// Processes take turns. While those of the first process in the order wait, others get at most 8 slots, or as many as are
// held for 160 ms together if slots are held for less than 20 ms; then the next free slot is kept for the first. A process
// that gets a slot in its turn, or begins to wait, goes behind the others. So of p processes that wait one gets a slot
// after at most 9p - 1 of the others, however long they are held. Processes under a limit of other n, and callers that
// Start, take no turn with them. A process that ends while it waits, or whose callers stop waiting, keeps its place for some
// looks more. A store that cannot hand over ([driver.Hander]), or that is unavailable, keeps no order between processes.
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
	w := &waiter{cost: 1, policy: c.limiter.policy, hold: c.hold}
	lines := c.limiter.lines
	err = lines.wait(ctx, key, full, w, func() (Result, error) {
		asked, err := c.ask(ctx, full, lines.ask(full, c.line))
		if err != nil {
			return Result{}, err
		}
		if asked.Allowed() {
			slot = asked
		} else {
			refused = asked
		}
		return asked.Result(), nil
	})
	if handed := lines.handed(w); handed != nil {
		if slot == nil && err == nil {
			return handed, nil
		}
		go c.pass(full, handed) // the caller has another one, or leaves
	}
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

// ask asks the store for a slot of a key with its prefix, in the turn of the line.
func (c *Concurrency) ask(ctx context.Context, key string, line driver.Line) (*Slot, error) {
	store, err := c.limiter.settler("a slot")
	if err != nil {
		return nil, err
	}
	call := newCall(key, 1, c.limiter.policy, true)
	call.waits = true
	if c.line != 0 {
		call.line = &line
	}
	reserved, err := c.limiter.hold(ctx, store, call)
	if err != nil {
		return nil, err
	}
	return &Slot{of: c, since: time.Now(), reserved: reserved}, nil
}

// handOver gives a slot back and asks for one in the same call, for the first in line. If the store fails, the slot
// becomes free after the hold time.
func (c *Concurrency) handOver(ctx context.Context, back driver.Settlement, line driver.Line) error {
	key := back.Request.Key
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	line.Back = back.At
	slot, err := c.ask(ctx, key, line)
	if err != nil {
		c.limiter.lines.arrived(key, nil)
		return storeError(context.Background(), err)
	}
	res := slot.Result()
	c.limiter.lines.arrived(key, &res)
	if slot.Allowed() {
		c.pass(key, slot)
	}
	if res.Source != FromStore { // it was decided in the store's place, which has not given the other back
		return &StoreError{Err: res.Cause}
	}
	return nil
}

// pass hands a slot to the first in line, and releases it if there is none.
func (c *Concurrency) pass(key string, slot *Slot) {
	if !c.limiter.lines.serve(key, slot) {
		_ = slot.reserved.Release(context.Background())
	}
}

// A slotLine is what a line whose callers wait for slots has beside others: when it looks at the store, and what is on its
// way.
type slotLine struct {
	looks  time.Duration // the longest time between two looks of any process
	next   time.Duration // that until the next look of this one
	held   time.Duration // how long the last slot was held that was released; 0 if there was none
	coming int           // calls under way that hand a slot over
}

// answered notes an answer. A line looks again after about as long as the newest slot has been held: so slots that are
// taken and released quickly are found quickly, and a long wait costs the store little. The time is cut at random, so
// that processes do not look in step.
func (s *slotLine) answered(res *Result, hold time.Duration) {
	if res.Allowed || res.Remaining == 0 { // else one is kept for a line whose turn it is, which looks soon
		s.looks = hold - res.ResetAfter
	}
	s.looks = min(max(s.looks, firstPause), longestPause)
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

// line returns the line as the store records it. The time between two looks at most doubles from one to the next.
func (s *slotLine) line(name uint64, more bool) driver.Line {
	looks, most := s.looks, int64(passes)
	if looks == 0 {
		looks = longestPause
	}
	if s.held > 0 {
		most = max(most, min(mostPasses, int64(passTime/s.held)))
	}
	return driver.Line{Name: name, Most: most, Stays: (2*looks + lateLook).Microseconds(), More: more}
}

// ask returns the line of a key for a call of its first.
func (q *lines) ask(key string, name uint64) driver.Line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	if l == nil { // it has broken up
		return new(slotLine).line(name, false)
	}
	return l.slots.line(name, l.waiters.Len() > 1+l.slots.coming)
}

// releases returns the line of a key that a slot is handed to which was held for a time, and whether it waits for one:
// more than are on their way to it. Then arrived has to be called.
func (q *lines) releases(key string, name uint64, held time.Duration) (line driver.Line, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	if l == nil {
		return driver.Line{}, false
	}
	l.slots.held = max(1, held)
	if l.slots.coming >= l.waiters.Len() {
		return driver.Line{}, false
	}
	l.slots.coming++
	return l.slots.line(name, l.waiters.Len() > l.slots.coming), true
}

// arrived notes the answer to a call that hands a slot over, or nil if it failed.
func (q *lines) arrived(key string, res *Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	if l == nil {
		return
	}
	l.slots.coming = max(0, l.slots.coming-1) // the line may be a new one
	first := l.waiters.Front().Value.(*waiter)
	if res == nil {
		l.last = Result{}
	} else {
		l.note(res, first)
	}
	first.wake()
}

// serve hands a slot to the first in line. It returns false if nobody waits.
func (q *lines) serve(key string, slot *Slot) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	if l == nil {
		return false
	}
	first := l.waiters.Front().Value.(*waiter)
	first.slot = slot
	q.remove(key, first)
	first.wake()
	return true
}

// handed returns the slot that was handed to a waiter, or nil.
func (q *lines) handed(w *waiter) *Slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.slot
}
