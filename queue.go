package sash

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"example.com/sash/driver"
)

// Callers of this process who wait for bookings that are alike, of the same keys under the same limits at the same costs,
// stand in a queue, and their places belong to the queue:
//
//	callers   a  b  c  d
//	places    1  2  3  4      in the order of their instants: each caller has the place below it
//
// When b leaves, the queue gives back its last place, 4, and c and d start at 2 and 3. So there is no gap that nobody fills:
// the next caller is booked where the last one was. A newcomer comes in with its place, behind those whose places are not
// later. So the place of a caller who stays only ever moves forward, and callers start in the order in which they came in.
//
// A queue has no goroutine. It has a timer for its first place, and is as long as there are callers in it.
type queue struct {
	callers []*turn
	places  []place // by at, and so by starts; as many as there are callers
	timer   *time.Timer
}

// A place is what was booked for one caller.
type place struct {
	at     int64               // on the store's clock
	starts time.Time           // on this process's clock
	sets   []driver.Settlement // of each reservation of the caller
}

// A turn is a caller in a queue. Its fields are guarded by the mutex of the lines, and do not change once done is closed.
type turn struct {
	holder []*Reservation
	done   chan struct{} // closed when the caller has left the queue, with a place for itself
	none   bool          // to be given back
}

// stand waits in the queue until the booking starts.
func (r *Reservation) stand(ctx context.Context) error {
	q, alike := r.limiter.lines, r.alike()
	t := q.stepIn(alike, r.together())
	select {
	case <-t.done:
	case <-ctx.Done():
		q.giveUp(alike, t)
		return storeError(ctx, ctx.Err())
	}
	if t.none {
		return errGivenBack
	}
	return sleep(ctx, r.Delay()) // if it was settled meanwhile
}

// alike returns what tells bookings apart that cannot stand in for one another.
func (r *Reservation) alike() string {
	var b strings.Builder
	for _, each := range r.together() {
		each.mu.Lock()
		fmt.Fprintf(&b, "%p %d %q ", each.set.Request.Policy, each.set.Request.Cost, each.subject)
		each.mu.Unlock()
	}
	return b.String()
}

// stepIn puts a caller with its place into the queue.
func (q *lines) stepIn(alike string, holder []*Reservation) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := holder[0].turn; t != nil {
		return t
	}
	t := &turn{holder: holder, done: make(chan struct{})}
	p, settled := t.take()
	if holder[0].turn = t; settled { // it keeps its own place
		close(t.done)
		return t
	}
	if q.alike == nil {
		q.alike = make(map[string]*queue)
	}
	line := q.alike[alike]
	if line == nil {
		line = new(queue)
		line.timer = time.AfterFunc(time.Until(p.starts), func() { q.start(alike) })
		q.alike[alike] = line
	}
	n := sort.Search(len(line.places), func(i int) bool { return line.places[i].at > p.at })
	line.callers, line.places = slices.Insert(line.callers, n, t), slices.Insert(line.places, n, p)
	for i := min(n+1, len(line.places)-1); i > 0; i-- { // an answer that took long made its place late: it begins no later than the next
		if last := &line.places[i-1]; last.starts.After(line.places[i].starts) {
			last.starts = line.places[i].starts
		}
	}
	q.tidy(alike, line)
	return t
}

// take returns the place of a caller, and whether one of its reservations was settled. The caller holds the mutex.
func (t *turn) take() (p place, settled bool) {
	for _, r := range t.holder {
		r.mu.Lock()
		p.at, p.starts, settled = r.set.At, r.starts, settled || r.decided
		p.sets = append(p.sets, r.set)
		r.mu.Unlock()
	}
	return p, settled
}

// out takes a caller out of the queue with a place, by their numbers. The caller holds the mutex.
func (line *queue) out(caller, place int) {
	t, p := line.callers[caller], line.places[place]
	line.callers, line.places = slices.Delete(line.callers, caller, caller+1), slices.Delete(line.places, place, place+1)
	for i, r := range t.holder {
		r.mu.Lock()
		r.starts, r.set, r.result.At = p.starts, p.sets[i], time.UnixMicro(p.at)
		r.mu.Unlock()
	}
	close(t.done)
}

// start starts the callers whose places have begun.
func (q *lines) start(alike string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.alike[alike]
	if line == nil {
		return
	}
	for now := time.Now(); len(line.places) > 0 && !line.places[0].starts.After(now); {
		line.out(0, 0)
	}
	q.tidy(alike, line)
}

// tidy sets the timer of a queue for its first place, or forgets it if it is empty. The caller holds the mutex.
func (q *lines) tidy(alike string, line *queue) {
	if len(line.places) == 0 {
		line.timer.Stop()
		delete(q.alike, alike)
		return
	}
	line.timer.Reset(time.Until(line.places[0].starts))
}

// giveUp takes out a caller whose context has ended, with the last place of the queue, to give it back. A caller whose turn
// has just come has its own.
func (q *lines) giveUp(alike string, t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line, n := q.find(alike, t); line != nil {
		t.none = true
		line.out(n, len(line.places)-1)
		q.tidy(alike, line)
	}
}

// stepOut takes the caller of a reservation that is about to be settled out of its queue, with the place that it would have
// had. It holds the mutex until the function that it returns is called.
func (q *lines) stepOut(r *Reservation) (unlock func()) {
	q.mu.Lock()
	if t := r.together()[0].turn; t != nil {
		alike := r.alike()
		if line, n := q.find(alike, t); line != nil {
			line.out(n, n)
			q.tidy(alike, line)
		}
	}
	return q.mu.Unlock
}

// find returns the queue that a caller is in, and its number there; nil if it has left. The caller holds the mutex.
func (q *lines) find(alike string, t *turn) (*queue, int) {
	line := q.alike[alike]
	if line == nil {
		return nil, 0
	}
	n := slices.Index(line.callers, t)
	if n < 0 {
		return nil, 0
	}
	return line, n
}
