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
// Units that come back now, and places that are given back before others, leave room before the first place: see forward.
//
// When the store's clock jumps, places from before and after it cannot stand in for one another, and newcomers begin another queue.
//
// A queue has no goroutine. It has a timer for its first place, and is as long as there are callers in it.
type queue struct {
	alike   string
	main    int            // which of its subjects the bookings wait for
	policy  *driver.Policy // of that, or to which its limits were raised since
	callers []*turn
	places  []place // by at, and so by starts; as many as there are callers
	timer   *time.Timer
	forward *forward // of the key of the main subject
	fixed   bool     // the store does not bring its places forward
	newest  place    // the last that was booked
}

// cost returns the cost of each caller for the main subject. The caller holds the mutex.
func (line *queue) cost() int64 { return line.places[0].sets[line.main].Request.Cost }

// A place is what was booked for one caller.
type place struct {
	at     int64               // on the store's clock
	starts time.Time           // on this process's clock
	took   time.Duration       // how long the answer took, by which it may start earlier
	sets   []driver.Settlement // of each reservation of the caller
}

// mostTremble is by how much clocks may move between two bookings of a queue.
const mostTremble = 2 * time.Millisecond

// jumped reports whether the store's clock has jumped between this booking and a later one.
func (p *place) jumped(later *place) bool {
	more := later.starts.Sub(p.starts) - time.Duration(later.at-p.at)*time.Microsecond
	return more > later.took+mostTremble || -more > p.took+mostTremble
}

// A turn is a caller in a queue. Its fields are guarded by the mutex of the lines, and do not change once done is closed.
type turn struct {
	holder []*Reservation
	line   *queue
	done   chan struct{} // closed when the caller has left the queue, with a place for itself
	look   chan struct{} // holds one value when the caller may be the first, or may have its place brought forward
	none   bool          // to be given back
	failed error         // of the store that was to bring its place forward
	moving chan struct{} // holds a value while its place is brought forward or settled
}

// stand waits in the queue until the booking starts.
func (r *Reservation) stand(ctx context.Context) error {
	q := r.limiter.lines
	t := q.stepIn(r.alike(), r.all)
	for {
		var due <-chan time.Time
		if d := r.bring(ctx, t); d < neverBring {
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
			return sleep(ctx, r.StartsIn()) // if it was settled meanwhile
		case <-ctx.Done():
			q.giveUp(t)
			return storeError(ctx, ctx.Err())
		case <-t.look:
		case <-due:
		}
	}
}

// alike returns what tells bookings apart that cannot stand in for one another.
func (r *Reservation) alike() string {
	var b strings.Builder
	for _, each := range r.all {
		each.mu.Lock()
		b.WriteString(alike(&each.set.Request, each.set.Request.Policy))
		each.mu.Unlock()
	}
	return b.String()
}

// alike is that of one request under a policy.
func alike(req *driver.Request, policy *driver.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %d %q ", policy.Algorithm, policy.Resolution, req.Cost, req.Key)
	for _, l := range policy.Limits {
		fmt.Fprintf(&b, "%d/%d/%d@%v ", l.Units, l.Window, l.Period, l.Zone)
	}
	return b.String()
}

// trade gives those who wait in a queue the place of a new booking that is like theirs, which may be in a gap before them, and
// the booking the last one of the queue that is within as many microseconds. So it overtakes nobody who starts within that time.
// It waits for a caller who is out of the queue while its place is brought forward, which takes a second at most.
func (q *lines) trade(ctx context.Context, holder []*Reservation, within int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.alike) == 0 {
		return
	}
	t := turn{holder: holder}
	own, _ := t.take()
	for i, r := range holder {
		if f := q.forward[r.subject]; f != nil {
			f.booked(&own, i)
		}
	}
	alike := holder[0].alike()
	line := q.alike[alike]
	for line != nil && line.forward.away == line {
		back := line.forward.back
		q.mu.Unlock()
		returned := false
		select {
		case <-back:
			returned = true
		case <-ctx.Done():
		case <-time.After(settleTime):
		}
		if q.mu.Lock(); !returned {
			return
		}
		line = q.alike[alike]
	}
	if line == nil || line.newest.jumped(&own) {
		return
	}
	n, came := line.before(holder[0].came+within)-1, holder[0].came
	latest := time.Now().Add(time.Duration(within) * time.Microsecond)
	for ; n >= 0 && line.places[n].at > own.at && (line.callers[n].holder[0].came > came || line.places[n].starts.After(latest)); n-- {
		continue // its caller came later, and its answer overtook this one; or it starts too late
	}
	if n < 0 || line.places[n].at <= own.at {
		return
	}
	first := line.before(own.at)
	line.places = slices.Insert(line.places, first, own)
	line.steady(first)
	t.have(line.places[n+1])
	for _, r := range holder {
		r.result.Delay = max(0, time.Until(r.starts))
	}
	line.places = slices.Delete(line.places, n+1, n+2)
	q.tidy(line)
}

// before returns how many places are not later than an instant. The caller holds the mutex.
func (line *queue) before(at int64) int {
	return sort.Search(len(line.places), func(i int) bool { return line.places[i].at > at })
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
		q.alike, q.forward = make(map[string]*queue), make(map[string]*forward)
	}
	line := q.alike[alike]
	if line == nil || line.newest.jumped(&p) {
		line = &queue{alike: alike, newest: p}
		line.timer = time.AfterFunc(time.Until(p.starts), func() { q.start(line) })
		q.alike[alike] = line
		q.comeForward(line, holder)
	}
	t.line, line.newest = line, p
	line.in(line.before(p.at), t, p)
	q.tidy(line)
	return t
}

// steady makes the place with a number begin no later than the next, where an answer that took long made it late.
func (line *queue) steady(n int) {
	for i := min(n+1, len(line.places)-1); i > 0; i-- {
		if last := &line.places[i-1]; last.starts.After(line.places[i].starts) {
			last.starts = line.places[i].starts
		}
	}
}

// take returns the place of a caller, and whether one of its reservations was settled. The caller holds the mutex.
func (t *turn) take() (p place, settled bool) {
	for _, r := range t.holder {
		r.mu.Lock()
		p.at, p.starts, p.took, settled = r.set.At, r.starts, r.took, settled || r.decided
		p.sets = append(p.sets, r.set)
		r.mu.Unlock()
	}
	return p, settled
}

// in puts a caller with its place into the queue, in front of the one with a number. Where an answer that took long made the
// place late, it begins no later than the next. The caller holds the mutex.
func (line *queue) in(n int, t *turn, p place) {
	line.callers, line.places = slices.Insert(line.callers, n, t), slices.Insert(line.places, n, p)
	line.steady(n)
}

// out takes a caller out of the queue with a place, by their numbers. The caller holds the mutex.
func (line *queue) out(caller, place int) {
	t, p := line.callers[caller], line.places[place]
	line.callers, line.places = slices.Delete(line.callers, caller, caller+1), slices.Delete(line.places, place, place+1)
	t.have(p)
	close(t.done)
}

// have makes a place that of the caller's reservations, under their own limits.
func (t *turn) have(p place) {
	for i, r := range t.holder {
		set := p.sets[i]
		r.mu.Lock()
		set.Request = r.set.Request
		r.starts, r.took, r.set, r.result.At = p.starts, p.took, set, time.UnixMicro(p.at)
		r.mu.Unlock()
	}
}

// start starts the callers whose places have begun.
func (q *lines) start(line *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for now := time.Now(); len(line.places) > 0 && !line.places[0].starts.After(now); {
		line.out(0, 0)
	}
	q.tidy(line)
}

// tidy sets the timer of a queue for its first place, or forgets it if it is empty. The caller holds the mutex.
func (q *lines) tidy(line *queue) {
	f := line.forward
	f.wake()
	if len(line.places) > 0 {
		line.timer.Reset(time.Until(line.places[0].starts))
		return
	}
	line.timer.Stop()
	if f.away == line { // it may come back
		return
	}
	if f.queues = slices.DeleteFunc(f.queues, func(other *queue) bool { return other == line }); len(f.queues) == 0 {
		delete(q.forward, f.key)
	}
	if q.alike[line.alike] == line {
		delete(q.alike, line.alike)
	}
}

// giveUp takes out a caller whose context has ended, with the last place of the queue, to give it back. A caller whose turn
// has just come has its own.
func (q *lines) giveUp(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line, n := t.find(); n >= 0 {
		t.none = true
		line.out(n, len(line.places)-1)
		q.tidy(line)
	}
}

// stepOut takes the caller of a reservation that is about to be settled out of its queue, with the place that it would have
// had. It holds the mutex until the function that it returns is called.
func (q *lines) stepOut(r *Reservation) (unlock func()) {
	q.mu.Lock()
	t := r.all[0].turn
	if t == nil {
		return q.mu.Unlock
	}
	q.mu.Unlock()
	t.moving <- struct{}{}
	q.mu.Lock()
	if line, n := t.find(); n >= 0 {
		line.out(n, n)
		q.tidy(line)
	}
	return func() {
		q.mu.Unlock()
		<-t.moving
	}
}

// find returns the queue of a caller, and its number there: -1 when it has left. The caller holds the mutex.
func (t *turn) find() (*queue, int) {
	if t.line == nil {
		return nil, -1
	}
	return t.line, slices.Index(t.line.callers, t)
}
