package sash

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Callers of this process who wait for a subject stand in its queue, each in one of these states:
//
//	asking   The store has not booked the call: it cannot book, or its queue is full or too long. The first caller in this state
//	         asks again as soon as the last answer leaves room, and the others sleep. See asker.
//	booked   The call has a place, an instant from which it may start, and its caller sleeps until then. See group.
//	moving   Units came back, and the store is asked to start the first booked call now. See forward.
//	left     The call starts, or has failed.
//
// A caller begins as asking or booked, and its state only moves down this list, except that a booking that cannot be moved becomes booked
// again. Limiters made by With share their queues, and one mutex guards them all. A queue has no goroutine.
type queues struct {
	mu       sync.Mutex
	byKey    map[string]*queue // none is empty
	returned time.Time         // when units of any key came back last
}

// A queue is the callers who wait for one subject. A caller who waits for several stands in the queue of the subject with the least left.
type queue struct {
	key     string
	groups  []*group // none is empty, unless its only caller is moving
	forward          // of the groups

	asking  []*asker      // in the order in which they came
	last    Result        // the last answer to an asker, with no policy if units came back since
	asked   int64         // the cost of the call that got that answer
	at      time.Time     // when the answer came
	refused Result        // the last refusal, with no policy if there was none
	returns int           // how often units came back
	again   time.Duration // how long after the last answer a caller asks again for a slot
}

// An asker is a caller who asks the store in turn, so that low costs do not overtake a high one, and asks again after units came back. If
// the store fails, all askers of a queue ask at once. If they still took turns, the last would wait for as many timeouts as there are askers.
type asker struct {
	cost    int64
	policy  *policy
	books   bool          // it asks for a booking
	hold    time.Duration // the longest hold of the slot that it asks for; zero if it asks for units
	look    chan struct{} // holds one value when something has changed
	alone   bool          // it need not wait for its turn
	returns int           // the queue's returns when it asked
}

const (
	// leastWait keeps a wait from spinning on a store whose refusals say that there is room at once.
	leastWait = time.Millisecond / 4
	// bookPolls is how often the first asker asks for a booking again within its RetryAfter. The store refuses to book when its queue is
	// full, and RetryAfter is then the time to the end of that queue; a place is free long before.
	bookPolls = 64
	// The times between two looks at the store for a slot that another process may have released. A caller looks again after about as long as
	// the newest slot has been held: short-lived slots are found quickly, and a long wait costs the store little. The time is cut at random,
	// so that processes do not look in step.
	leastLook   = 10 * time.Millisecond
	longestLook = time.Second
)

// of returns the queue of a key, and makes one if nobody waits for the key. The caller holds the mutex.
func (qs *queues) of(key string) *queue {
	q := qs.byKey[key]
	if q == nil {
		if q = (&queue{key: key}); qs.byKey == nil {
			qs.byKey = make(map[string]*queue)
		}
		qs.byKey[key] = q
	}
	return q
}

// tidy forgets a queue that is empty. The caller holds the mutex.
func (qs *queues) tidy(q *queue) {
	if len(q.asking) == 0 && len(q.groups) == 0 {
		delete(qs.byKey, q.key)
	}
}

func (qs *queues) asks(key string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[key]
	return q != nil && len(q.asking) > 0
}

// ask calls the function in turn until it admits the call or fails, and returns its error. If the deadline comes first
// and a call of the queue has been refused, the error is a LimitedError with the name.
func (qs *queues) ask(ctx context.Context, name, key string, a *asker, ask func(*policy) (Result, error)) error {
	a.look = make(chan struct{}, 1)
	qs.mu.Lock()
	q := qs.of(key)
	a.alone = len(q.asking) > 0 && q.asking[0].alone
	q.asking = append(q.asking, a)
	qs.mu.Unlock()
	defer qs.admit(q, a)
	for {
		first, earliest, refused, limits := qs.turn(q, a)
		d := time.Until(earliest)
		deadline, ok := ctx.Deadline()
		tooLate := ok && d > 0 && !deadline.After(earliest) && a.hold == 0 // a slot may be free at any moment
		if tooLate && refused.policy != nil {
			if !a.books { // a booking is requested long before its turn
				refused.RetryAfter = d
			}
			return limited(name, refused, context.DeadlineExceeded)
		}
		if first && (tooLate || d <= 0) {
			res, err := ask(limits)
			qs.answered(q, a, &res, err)
			if err != nil || res.Allowed {
				return err
			}
			continue
		}
		var due <-chan time.Time
		if first {
			due = time.After(d)
		}
		select {
		case <-due:
		case <-a.look:
		case <-ctx.Done():
			if _, _, refused, _ = qs.turn(q, a); refused.policy != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return limited(name, refused, context.DeadlineExceeded)
			}
			return storeError(ctx, ctx.Err())
		}
	}
}

// turn reports whether the caller may ask, the instant before which the first caller has no room, the last refusal, and the caller's limits.
func (qs *queues) turn(q *queue, a *asker) (first bool, earliest time.Time, refused Result, limits *policy) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if a.returns = q.returns; a.alone {
		return true, earliest, refused, a.policy
	}
	front := q.asking[0]
	return front == a, q.at.Add(q.pause(front)), q.refused, a.policy
}

// pause returns for how long after the last answer a caller has no room.
func (q *queue) pause(a *asker) (d time.Duration) {
	last := &q.last
	switch {
	case last.policy != a.policy:
	case a.hold > 0 && !last.Allowed:
		d = min(q.again, max(last.RetryAfter, leastWait))
	case a.hold > 0 && last.Remaining == 0:
		d = q.again
	case a.hold > 0, a.books && last.Allowed: // the next call can be booked behind that one
	case a.books:
		d = max(last.RetryAfter/bookPolls, leastWait)
	case !last.Allowed && a.cost >= q.asked:
		d = max(last.RetryAfter, leastWait)
	case last.Allowed && last.Source == FromStore:
		for _, s := range last.limitStatuses() {
			if s.Remaining < a.cost {
				d = max(d, micros(s.Release))
			}
		}
	}
	return d
}

// answered records an answer. If the store failed, every asker may ask out of turn until it has an answer.
func (qs *queues) answered(q *queue, a *asker, res *Result, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if errors.Is(err, ErrUnavailable) {
		for _, other := range q.asking {
			other.alone = true
			signal(other.look)
		}
	}
	if err != nil {
		return
	}
	a.alone = false
	q.last, q.asked, q.at = *res, a.cost, time.Now()
	if a.hold > 0 {
		looks := min(max(a.hold-res.ResetAfter, leastLook), longestLook)
		q.again = looks/2 + rand.N(looks/2)
	}
	if !res.Allowed {
		q.refused = *res
	}
	if q.returns != a.returns { // units may have come back after the answer
		q.last = Result{}
	}
}

// admit removes an asker from its queue, and wakes the first of the rest.
func (qs *queues) admit(q *queue, a *asker) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.asking = slices.DeleteFunc(q.asking, func(other *asker) bool { return other == a })
	if len(q.asking) > 0 {
		signal(q.asking[0].look)
	}
	qs.tidy(q)
}

// give records units of a subject that came back, now or with a place ahead, and wakes callers. If sure is not set, it wakes only askers.
func (qs *queues) give(key string, back gap, sure bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if sure && back.starts.IsZero() {
		qs.returned = time.Now()
	}
	q := qs.byKey[key]
	if q == nil {
		return
	}
	if sure {
		q.came = time.Now()
		q.gain(back)
	}
	if q.returns, q.last = q.returns+1, (Result{}); len(q.asking) > 0 {
		signal(q.asking[0].look)
	}
}

// signal wakes the caller that receives from the channel, which holds one value.
func signal(look chan struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}
