package decide

import (
	"cmp"
	"context"
	"sync"
	"time"

	"example.com/sash/failover"
)

// queues bound what a client holds of each subject's queue by bookings that wait: no more than it leaves free, as
// conns.Share has it. A booking counts as the time in which its units are free again at the rate of the limit. This process
// counts those that it made. It is safe for concurrent use; the zero value holds none.
type queues struct {
	mu   sync.Mutex
	held map[place]*waits // guarded by mu
	kept int              // guarded by mu: of held, after the last sweep
}

const (
	mostPlaces = 100_000 // beyond which a client has no share of a queue, and waits as long as the rule lets it
	steps      = 32      // of a queue: bookings that start in one of them are counted together, until the last starts
)

// A place is of a client in the queue of a subject.
type place struct{ client, subject string }

// waits are the bookings of a place: those that are asked for, and those that wait.
type waits struct {
	asked, sum time.Duration
	steps      []step // in their order; sum is of all
}

type step struct {
	ends time.Time
	time time.Duration
	ids  map[string]time.Duration // of its bookings: a repetition is none
}

// leave forgets the bookings that have started.
func (w *waits) leave(now time.Time) {
	for len(w.steps) > 0 && !w.steps[0].ends.After(now) {
		w.sum -= w.steps[0].time
		w.steps = w.steps[1:]
	}
}

// take adds a booking that is asked for, and returns how far ahead it may be in a queue of a length.
func (q *queues) take(p place, booking, length time.Duration) (within time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, w := time.Now(), q.held[p]
	if w == nil {
		if q.held == nil || len(q.held) > 2*q.kept+1000 {
			q.sweep(now)
		}
		if len(q.held) >= mostPlaces {
			return length
		}
		w = &waits{}
		q.held[p] = w
	}
	w.leave(now)
	within = max(0, length-w.sum-w.asked)
	w.asked += booking
	return within
}

// sweep forgets the places without bookings.
func (q *queues) sweep(now time.Time) {
	kept := make(map[place]*waits)
	for p, w := range q.held {
		if w.leave(now); w.asked+w.sum > 0 {
			kept[p] = w
		}
	}
	q.held, q.kept = kept, len(kept)
}

// taken says after what time the booking of a take starts, which may have an ID; at zero there is none, or it does not wait.
func (q *queues) taken(p place, id string, booking, length, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.held[p]
	if w == nil {
		return
	}
	w.asked = max(0, w.asked-booking)
	if delay == 0 || w.with(id) != nil {
		return
	}
	starts, last := time.Now().Add(delay), len(w.steps)-1
	if w.sum += booking; last >= 0 && !starts.After(w.steps[last].ends) {
		w.steps[last].time += booking
	} else {
		w.steps = append(w.steps, step{ends: starts.Add(length / steps), time: booking, ids: make(map[string]time.Duration)})
	}
	if id != "" {
		w.steps[len(w.steps)-1].ids[id] = booking
	}
}

// with returns the step of the booking with an ID, or nil.
func (w *waits) with(id string) *step {
	for i := range w.steps {
		if _, ok := w.steps[i].ids[id]; ok {
			return &w.steps[i]
		}
	}
	return nil
}

// settled forgets what was not used of a booking.
func (q *queues) settled(p place, id string, used, units int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.held[p]
	if w == nil || used >= units {
		return
	}
	if s := w.with(id); s != nil {
		unused := time.Duration(float64(s.ids[id]) * float64(units-used) / float64(units))
		s.ids[id] = 0 // the first settlement counts
		s.time -= unused
		w.sum -= unused
	}
}

// inQueue lets a part wait no further than its client's share of the queue. The caller calls taken once there is an answer.
func (d *Decider) inQueue(ctx context.Context, req *Request, a *Answer) (taken func()) {
	p, booking := place{failover.Client(ctx), a.Key}, a.booking()
	a.within = min(a.within, d.queues.take(p, booking, a.queue))
	return func() {
		id := req.ID
		if req.reserved != nil {
			id = req.reserved.ID
		}
		d.queues.taken(p, id, booking, a.queue, a.Delay)
	}
}

// booking returns the time that a part's units take in the queue.
func (a *Answer) booking() (longest time.Duration) {
	for _, l := range a.limits.named {
		window := cmp.Or(l.Window, a.queue)
		longest = max(longest, time.Duration(float64(window)*float64(a.need)/float64(l.Units)))
	}
	return longest
}
