package sash

import (
	"context"
	"errors"
	"fmt"
	"math"
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
// Units that come back by a settlement, a reward or a reset leave room before the first place. Then the first caller asks the
// store to bring its place forward to now, and so does the next one when it is first: see bring. A store that has no room
// leaves the place, and is asked again from time to time: other processes give units back, too.
//
// A queue has no goroutine. It has a timer for its first place, and is as long as there are callers in it.
type queue struct {
	callers []*turn
	places  []place // by at, and so by starts; as many as there are callers
	timer   *time.Timer
	key     string // of the bookings, if they are of one subject
	away    int    // callers whose place is being brought forward, which are not in the queue meanwhile

	loose bool          // the first place may be brought forward
	asked time.Time     // when the store had no room for it
	pause time.Duration // until it is asked again
	back  int64         // the units that came back since then
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
	look   chan struct{} // holds one value when the caller may be the first, or may have its place brought forward
	none   bool          // to be given back
	failed error         // of the store that was to bring its place forward
	moving chan struct{} // holds a value while its place is brought forward or settled
}

// stand waits in the queue until the booking starts.
func (r *Reservation) stand(ctx context.Context) error {
	q, alike := r.limiter.lines, r.alike()
	t := q.stepIn(alike, r.together())
	for {
		var due <-chan time.Time
		if d := q.soon(alike, t); d < neverBring {
			due = time.After(d)
		}
		select {
		case <-t.done:
			if t.none {
				return errGivenBack
			}
			if t.failed != nil {
				return storeError(ctx, t.failed)
			}
			return sleep(ctx, r.Delay()) // if it was settled meanwhile
		case <-ctx.Done():
			q.giveUp(alike, t)
			return storeError(ctx, ctx.Err())
		case <-t.look:
		case <-due:
			r.bring(ctx, alike, t)
		}
	}
}

// The times between two questions whether a place can be brought forward.
const (
	leastBring = 10 * time.Millisecond
	neverBring = time.Duration(math.MaxInt64)
	bringAgain = 2  // times as long after each refusal
	bringOften = 16 // times in the longest window at least
)

// soon returns how long a caller waits before it asks for its place to be brought forward.
func (q *lines) soon(alike string, t *turn) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	line, n := q.find(alike, t)
	now := time.Now()
	if line == nil || n > 0 || line.away > 0 || !line.loose {
		return neverBring
	}
	wait := max(time.Microsecond, line.asked.Add(line.pause).Sub(now))
	if now.Add(wait + leastBring).After(line.places[0].starts) {
		return neverBring
	}
	return wait
}

// pauses returns how long a queue pauses before it asks again: at first half of the time in which the units of a place flow
// at the fastest limit, and at last a part of the longest window.
func pauses(req *driver.Request) (first, last time.Duration) {
	flow := int64(math.MaxInt64)
	for _, l := range req.Policy.Limits {
		if l.Window > 0 {
			flow = min(flow, int64(float64(l.Window)/float64(l.Units)*float64(req.Cost)))
		}
	}
	longest := time.Duration(req.Policy.Longest()) * time.Microsecond
	last = max(longest/bringOften, leastBring)
	return min(max(time.Duration(flow/2)*time.Microsecond, leastBring), last), last
}

// bring asks the store to bring the place of the first caller forward to now. The caller is not in the queue meanwhile. If
// the store fails, nobody knows when the place is: the caller gets the error, and the queue asks no more until units come
// back again.
func (r *Reservation) bring(ctx context.Context, alike string, t *turn) {
	store, ok := driver.As[driver.Extender](r.limiter.store)
	q := r.limiter.lines
	t.moving <- struct{}{}
	defer func() { <-t.moving }()
	q.mu.Lock()
	line, n := q.find(alike, t)
	if line == nil || n > 0 || line.away > 0 {
		q.mu.Unlock()
		return
	}
	p := line.places[0]
	set := p.sets[0]
	if !ok || !set.Request.Policy.Algorithm.Extends() || set.Source != driver.FromStore {
		line.loose = false
		q.mu.Unlock()
		return
	}
	line.callers, line.places = line.callers[1:], line.places[1:]
	line.away++
	q.tidy(alike, line)
	q.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	set.Delay = max(set.Delay, 1)
	at, err := store.Extend(ctx, set)
	cancel()

	q.mu.Lock()
	defer q.mu.Unlock()
	line.away--
	now := time.Now()
	if at != 0 {
		set.At, set.Delay, line.pause = at, 0, 0
		p = place{at: at, starts: now, sets: []driver.Settlement{set}}
	}
	n = line.in(t, p)
	switch {
	case at != 0:
		line.out(n, n)
	case errors.Is(err, ErrUnsupported):
		line.loose = false
	case err != nil:
		line.loose, t.failed = false, err
		line.out(n, n)
	default:
		first, last := pauses(&set.Request)
		line.asked, line.back, line.pause = now, 0, min(max(bringAgain*line.pause, first), last)
	}
	q.tidy(alike, line)
}

// given tells the queues of a key that units came back. The caller holds the mutex.
func (q *lines) given(key string, units int64) {
	q.lowered = time.Now()
	for _, line := range q.queues[key] {
		if len(line.places) == 0 {
			continue
		}
		req := &line.places[0].sets[0].Request
		line.loose = true
		if line.back += units; line.back >= req.Cost {
			first, _ := pauses(req)
			line.pause = min(line.pause, first)
		}
		line.wake()
	}
}

// wake wakes the first caller.
func (line *queue) wake() {
	select {
	case line.callers[0].look <- struct{}{}:
	default:
	}
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
	t := &turn{holder: holder, done: make(chan struct{}), look: make(chan struct{}, 1), moving: make(chan struct{}, 1)}
	p, settled := t.take()
	if holder[0].turn = t; settled { // it keeps its own place
		close(t.done)
		return t
	}
	if q.alike == nil {
		q.alike, q.queues = make(map[string]*queue), make(map[string][]*queue)
	}
	line := q.alike[alike]
	if line == nil {
		line = new(queue)
		line.timer = time.AfterFunc(time.Until(p.starts), func() { q.start(alike) })
		q.alike[alike] = line
		if len(holder) == 1 {
			line.key = holder[0].subject
			line.loose = time.Since(q.lowered) < time.Duration(p.sets[0].Request.Policy.Longest())*time.Microsecond
			q.queues[line.key] = append(q.queues[line.key], line)
		}
	}
	n := line.in(t, p)
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

// in puts a caller with its place into the queue, and returns their number. The caller holds the mutex.
func (line *queue) in(t *turn, p place) int {
	n := sort.Search(len(line.places), func(i int) bool { return line.places[i].at > p.at })
	line.callers, line.places = slices.Insert(line.callers, n, t), slices.Insert(line.places, n, p)
	return n
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
	if len(line.places) > 0 {
		line.timer.Reset(time.Until(line.places[0].starts))
		if line.loose {
			line.wake()
		}
		return
	}
	line.timer.Stop()
	if line.away > 0 {
		return
	}
	delete(q.alike, alike)
	if all := q.queues[line.key]; len(all) > 1 {
		q.queues[line.key] = slices.DeleteFunc(all, func(other *queue) bool { return other == line })
	} else if line.key != "" {
		delete(q.queues, line.key)
	}
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
	t := r.together()[0].turn
	if t == nil {
		return q.mu.Unlock
	}
	q.mu.Unlock()
	t.moving <- struct{}{}
	q.mu.Lock()
	alike := r.alike()
	if line, n := q.find(alike, t); line != nil {
		line.out(n, n)
		q.tidy(alike, line)
	}
	return func() {
		q.mu.Unlock()
		<-t.moving
	}
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
