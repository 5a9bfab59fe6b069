package sash

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Callers who wait for one subject stand in a line in this process where bookings do not order them, first come first served:
//
//	first    asks the store, sleeps until its RetryAfter has passed, asks again, is admitted and goes
//	second   asks when the first has gone, unless the last answer says that it has no room yet
//	...
//
// So a high cost is not overtaken by low ones. Units that are given back in this process wake the first. When the store
// fails the line breaks up, and all ask at once: one after the other they would wait for as many timeouts. Those who are
// refused line up again in their old order.
//
// A line has no goroutine. It is as long as there are callers in it, and a subject that nobody waits for has none.

// bookPolls is how often the first in line asks for a booking again within its RetryAfter. The store refuses to book when
// its queue is full, and RetryAfter is then the time to the end of the queue; a place is free long before.
const bookPolls = 64

// lines are the lines of a limiter by key. Limiters made by With share them. The zero value has none.
type lines struct {
	mu      sync.Mutex
	byKey   map[string]*line    // guarded by mu; none is empty
	came    uint64              // guarded by mu: the callers so far
	alike   map[string]*queue   // guarded by mu: by what was booked, those of newcomers; none is empty, but while its only place is moved
	forward map[string]*forward // guarded by mu: by key, for the queues of one subject
	lowered time.Time           // guarded by mu: when units of any key came back last
}

// A line is the callers who wait for one subject. Its fields are guarded by the mutex of the lines.
type line struct {
	waiters []*waiter     // by number
	last    Result        // the last answer to one of them, with no policy if units were given back since
	asked   int64         // the cost of the call that got it
	at      time.Time     // when
	refused Result        // the last refusal, with no policy if there was none
	given   int           // how often units were given back
	look    time.Duration // how long after it callers who wait for a slot look again
}

// A waiter is a caller in a line.
type waiter struct {
	cost   int64
	policy *policy       // guarded by the mutex of the lines
	books  bool          // it asks for a booking
	hold   time.Duration // the longest hold of the slot that it asks for; zero if it asks for units
	number uint64        // the least came first
	look   chan struct{} // holds one value when the waiter has to look again where it stands
	in     bool          // guarded by the mutex of the lines: false when the line has broken up
	given  int           // line.given when it asked
}

// busy reports whether callers wait for the key.
func (q *lines) busy(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byKey[key] != nil
}

// wait lines up and asks until the call is admitted or ask fails, and returns the last error. If the deadline comes first
// it is a LimitedError for the name, when the line has been refused.
func (q *lines) wait(ctx context.Context, name, key string, w *waiter, ask func(*policy) (Result, error)) error {
	w.look = make(chan struct{}, 1)
	q.join(key, w)
	defer q.leave(key, w)
	for {
		first, earliest, refused := q.turn(key, w)
		d := time.Until(earliest)
		deadline, ok := ctx.Deadline()
		late := ok && d > 0 && !deadline.After(earliest) && w.hold == 0 // a slot may be free at any moment
		switch {
		case late && refused.policy != nil:
			if !w.books { // one that books asks long before its turn
				refused.RetryAfter = d
			}
			return limited(name, refused, context.DeadlineExceeded)
		case first && (late || d <= 0):
			res, err := ask(q.limits(w))
			q.answered(key, w, &res, err)
			if err != nil || res.Allowed {
				return err
			}
		case !w.sleep(ctx, first, d):
			if _, _, refused = q.turn(key, w); refused.policy != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return limited(name, refused, context.DeadlineExceeded)
			}
			return storeError(ctx, ctx.Err())
		}
	}
}

// sleep waits until there is something new: for d if the waiter is the first. It returns false when the context ended.
func (w *waiter) sleep(ctx context.Context, first bool, d time.Duration) bool {
	var timeout <-chan time.Time
	if first {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-timeout:
	case <-w.look:
	case <-ctx.Done():
		return false
	}
	return true
}

// join puts a caller behind all others.
func (q *lines) join(key string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.came++
	w.number = q.came
	q.place(key, w)
}

// place puts a waiter behind all that came before it, and returns its line. The caller holds the mutex.
func (q *lines) place(key string, w *waiter) *line {
	l := q.byKey[key]
	if l == nil {
		l = new(line)
		if q.byKey == nil {
			q.byKey = make(map[string]*line)
		}
		q.byKey[key] = l
	}
	n := len(l.waiters)
	for n > 0 && l.waiters[n-1].number > w.number {
		n--
	}
	l.waiters, w.in = slices.Insert(l.waiters, n, w), true
	return l
}

// turn reports whether the waiter may ask, and the instant before which the first in line need not. It returns the last refusal too.
func (q *lines) turn(key string, w *waiter) (first bool, earliest time.Time, refused Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.in {
		return true, time.Time{}, Result{}
	}
	l := q.byKey[key]
	front := l.waiters[0]
	w.given = l.given
	return front == w, l.at.Add(l.pause(front)), l.refused
}

// limits returns those under which the waiter asks.
func (q *lines) limits(w *waiter) *policy {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.policy
}

// pause returns how long after the last answer the waiter has no room.
func (l *line) pause(w *waiter) (d time.Duration) {
	last := &l.last
	switch {
	case last.policy != w.policy:
	case w.hold > 0:
		d = l.slotPause(last)
	case w.books && last.Allowed: // the next has a place behind it
	case w.books:
		d = max(last.RetryAfter/bookPolls, leastWait)
	case !last.Allowed && w.cost >= l.asked:
		d = max(last.RetryAfter, leastWait)
	case last.Allowed && last.Source == FromStore:
		for _, s := range last.limitStatuses() {
			if s.Remaining < w.cost {
				d = max(d, micros(s.Release))
			}
		}
	}
	return d
}

// The times between two looks at the store for a slot that another process may have released. A line looks again after
// about as long as the newest slot has been held: so slots that are taken and released quickly are found quickly, and a
// long wait costs the store little. The time is cut at random, so that processes do not look in step.
const (
	leastLook   = 10 * time.Millisecond
	longestLook = time.Second
)

// slotPause returns how long after an answer the first looks for a slot again.
func (l *line) slotPause(last *Result) time.Duration {
	switch {
	case !last.Allowed:
		return min(l.look, max(last.RetryAfter, leastWait))
	case last.Remaining > 0:
		return 0
	}
	return l.look
}

// answered notes an answer. If the store failed, the line breaks up.
func (q *lines) answered(key string, w *waiter, res *Result, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.byKey[key]
	switch {
	case err == nil && !res.Allowed && !w.in:
		l = q.place(key, w)
		w.given = l.given
	case !w.in:
		return
	case errors.Is(err, ErrUnavailable):
		for _, other := range l.waiters {
			other.in = false
			other.wake()
		}
		delete(q.byKey, key)
	}
	if err != nil {
		return
	}
	l.last, l.asked, l.at = *res, w.cost, time.Now()
	if w.hold > 0 {
		looks := min(max(w.hold-res.ResetAfter, leastLook), longestLook)
		l.look = looks/2 + rand.N(looks/2)
	}
	if !res.Allowed {
		l.refused = *res
	}
	if l.given != w.given { // the answer may be older than what was given back
		l.last = Result{}
	}
}

// leave takes a waiter out of its line, and wakes the first of those that are left.
func (q *lines) leave(key string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.in {
		return
	}
	l := q.byKey[key]
	n := slices.Index(l.waiters, w)
	l.waiters, w.in = slices.Delete(l.waiters, n, n+1), false
	if len(l.waiters) > 0 {
		l.waiters[0].wake()
	} else {
		delete(q.byKey, key)
	}
}

// give wakes those who can use the units of a subject that were given back, if sure: now, or ahead, where a place was.
func (q *lines) give(key string, back gap, sure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.forward[key]
	switch {
	case !sure:
	case back.starts.IsZero():
		if q.lowered = time.Now(); f != nil {
			f.came(back.units)
		}
	case f != nil:
		f.leave(back)
	}
	if l := q.byKey[key]; l != nil {
		l.given++
		l.last = Result{}
		l.waiters[0].wake()
	}
}

func (w *waiter) wake() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}
