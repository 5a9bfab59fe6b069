package sash

import (
	"context"
	"slices"
	"sort"
	"time"

	"example.com/sash/driver"
)

// A group is the callers of a queue whose bookings have the same keys, limits and costs. Their places belong to the group:
//
//	callers   a  b  c  d
//	places    1  2  3  4      in the order of their instants: each caller has the place below it
//
// When b leaves, the group gives back its last place, 4, and c and d start at 2 and 3. So no gap stays empty: the next caller
// is booked at the place given back. A newcomer brings its place and stands behind the callers whose places are not later. So
// the place of a caller who stays only moves forward, and callers start in the order in which they came.
//
// When the store's clock jumps, places booked before and after the jump are not interchangeable, and newcomers begin another group.
type group struct {
	queue   *queue
	wants   []driver.Request // what each caller requests; the main subject's limits are replaced when they are raised
	main    int              // the subject with the least left, in whose queue the group is
	callers []*waiter
	places  []place // sorted by at, and so by starts; one for each caller
	fixed   bool    // the store cannot bring these places forward
	newest  place   // the one that was booked last
	raised  bool    // the main subject's limits were raised since places were booked
}

// A place is an instant that was booked for one caller, for all of its reservations.
type place struct {
	at     int64         // on the store's clock
	starts time.Time     // on this process's clock, at the latest
	took   time.Duration // how long the answer took, by which it may start earlier
	delay  int64         // from the decision, in microseconds
	source driver.Source // who booked it
}

// mostJitter is the most that clocks may drift apart between two bookings of a group.
const mostJitter = 2 * time.Millisecond

// jumped reports whether the store's clock has jumped between this booking and a later one.
func (p *place) jumped(later *place) bool {
	more := later.starts.Sub(p.starts) - time.Duration(later.at-p.at)*time.Microsecond
	return more > later.took+mostJitter || -more > p.took+mostJitter
}

// A waiter is a caller with a booking. Its fields do not change once done is closed.
type waiter struct {
	parts  []*Reservation
	group  *group
	done   chan struct{} // closed when the caller has left the group, with a place for itself
	look   chan struct{} // holds one value when the caller may have become the first of its group, or may be brought forward
	err    error         // why it does not start
	moving chan struct{} // holds a value while its place is brought forward or settled
}

func (r *Reservation) waitInGroup(ctx context.Context) error {
	qs := r.limiter.queues
	w := qs.enter(r.all)
	for {
		due := qs.step(ctx, w)
		select {
		case <-w.done:
			if w.err != nil {
				return w.err
			}
			return sleep(ctx, r.StartsIn()) // if it was settled meanwhile
		case <-ctx.Done():
			qs.giveUp(w)
			return storeError(ctx, ctx.Err())
		case <-w.look:
		case <-due:
		}
	}
}

// groupOf returns the last group whose bookings are interchangeable with a caller's. The caller holds the mutex.
func (qs *queues) groupOf(parts []*Reservation) *group {
	for _, r := range parts {
		q := qs.byKey[r.set.Key]
		if q == nil {
			continue
		}
		for _, g := range slices.Backward(q.groups) {
			if slices.EqualFunc(g.wants, parts, func(want driver.Request, r *Reservation) bool {
				return want.Key == r.set.Key && want.Cost == r.set.Cost && want.Policy.Equal(r.set.Policy)
			}) {
				return g
			}
		}
	}
	return nil
}

// trade exchanges the place of a new booking, which may be in a gap, for the last place of its group that begins within a number of
// microseconds. The callers in between move up. So the newcomer overtakes nobody who starts within that time. If a caller of the
// group is being brought forward, trade waits for that caller, a second at most.
func (qs *queues) trade(ctx context.Context, parts []*Reservation, within int64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(qs.byKey) == 0 {
		return
	}
	p, _ := placeOf(parts)
	for _, r := range parts {
		if q := qs.byKey[r.set.Key]; q != nil {
			q.booked(&p, &r.set.Request, len(parts))
		}
	}
	g := qs.groupOf(parts)
	for g != nil && g.queue.away == g {
		q, back := g.queue, g.queue.back
		q.trades++
		qs.mu.Unlock()
		select {
		case <-back:
		case <-ctx.Done():
		case <-time.After(settleTime):
		}
		qs.mu.Lock()
		if q.trades--; q.trades == 0 {
			q.wake()
		}
		if q.away == g && q.back == back {
			return
		}
		g = qs.groupOf(parts)
	}
	if g == nil || g.newest.jumped(&p) {
		return
	}
	n, came := g.before(parts[0].came+within)-1, parts[0].came
	latest := time.Now().Add(time.Duration(within) * time.Microsecond)
	for ; n >= 0 && g.places[n].at > p.at && (g.callers[n].parts[0].came > came || g.places[n].starts.After(latest)); n-- {
		continue // the caller there came later and was answered first, or starts too late for the newcomer
	}
	if n < 0 || g.places[n].at <= p.at {
		return
	}
	first := g.before(p.at)
	g.places = slices.Insert(g.places, first, p)
	g.steady(first)
	have(parts, g.places[n+1])
	for _, r := range parts {
		r.result.Delay = max(0, time.Until(r.starts))
	}
	g.places = slices.Delete(g.places, n+1, n+2)
	qs.schedule(g)
}

// before returns the number of places that are not later than an instant. The caller holds the mutex.
func (g *group) before(at int64) int {
	return sort.Search(len(g.places), func(i int) bool { return g.places[i].at > at })
}

// enter puts a caller with its place into its group, unless it has been in one before.
func (qs *queues) enter(parts []*Reservation) *waiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w := parts[0].waiter; w != nil {
		return w
	}
	w := &waiter{parts: parts, done: make(chan struct{}), look: make(chan struct{}, 1), moving: make(chan struct{}, 1)}
	p, settled := placeOf(parts)
	if parts[0].waiter = w; settled { // it keeps its own place
		close(w.done)
		return w
	}
	g := qs.groupOf(parts)
	if g == nil || g.newest.jumped(&p) {
		g = qs.begin(parts, p)
	}
	w.group, g.newest = g, p
	g.in(g.before(p.at), w, p)
	qs.schedule(g)
	return w
}

// begin begins a group for a caller, in the queue of the subject with the least left for its cost.
func (qs *queues) begin(parts []*Reservation, p place) *group {
	g := &group{newest: p, fixed: parts[0].limiter.store.Powers()&driver.CanExtend == 0}
	left := func(i int) float64 { return float64(parts[i].result.Remaining) / float64(parts[i].set.Cost) }
	for i, r := range parts {
		g.wants = append(g.wants, r.set.Request)
		if left(i) < left(g.main) {
			g.main = i
		}
	}
	want := &g.wants[g.main]
	g.queue = qs.of(want.Key)
	if len(g.queue.groups) == 0 {
		g.queue.forward = forward{heard: time.Now(), polls: time.Since(qs.returned) < time.Duration(want.Policy.Longest())*time.Microsecond}
	}
	g.queue.groups = append(g.queue.groups, g)
	return g
}

// steady corrects places up to an index that begin later than the place after them, which a slow answer can cause.
func (g *group) steady(n int) {
	for i := min(n+1, len(g.places)-1); i > 0; i-- {
		if last := &g.places[i-1]; last.starts.After(g.places[i].starts) {
			last.starts = g.places[i].starts
		}
	}
}

// placeOf returns the place of a caller, and whether one of its reservations was settled. The caller holds the mutex.
func placeOf(parts []*Reservation) (p place, settled bool) {
	for _, r := range parts {
		r.mu.Lock()
		p, settled = r.place, settled || r.decided
		r.mu.Unlock()
	}
	return p, settled
}

// in inserts a caller and its place into the group at an index. The caller holds the mutex.
func (g *group) in(n int, w *waiter, p place) {
	g.callers, g.places = slices.Insert(g.callers, n, w), slices.Insert(g.places, n, p)
	g.steady(n)
}

// out removes a caller and a place, each by its index, and gives the place to the caller. The caller holds the mutex.
func (g *group) out(caller, place int) {
	w, p := g.callers[caller], g.places[place]
	g.callers, g.places = slices.Delete(g.callers, caller, caller+1), slices.Delete(g.places, place, place+1)
	have(w.parts, p)
	close(w.done)
}

// have gives a place to the reservations of a caller. The caller holds the mutex.
func have(parts []*Reservation, p place) {
	for _, r := range parts {
		r.mu.Lock()
		r.place, r.result.At = p, time.UnixMicro(p.at)
		r.set.At, r.set.Delay, r.set.Source = p.at, p.delay, p.source
		r.mu.Unlock()
	}
}

// schedule wakes the first caller of a group, or forgets the group if it is empty. The caller holds the mutex.
func (qs *queues) schedule(g *group) {
	q := g.queue
	if len(g.callers) > 0 {
		signal(g.callers[0].look)
	} else if q.away != g { // else its caller may come back
		q.groups = slices.DeleteFunc(q.groups, func(other *group) bool { return other == g })
		qs.tidy(q)
	}
	q.wake()
}

// giveUp removes a caller whose context has ended, together with the last place of the group, which is to be given back. A caller whose
// turn has just come has left already, with its own place.
func (qs *queues) giveUp(w *waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if n := w.number(); n >= 0 {
		w.err = errGivenBack
		w.group.out(n, len(w.group.places)-1)
		qs.schedule(w.group)
	}
}

// stepOut removes from its group the caller of a reservation that is about to be settled, together with the place below it. It holds the
// mutex until the returned function is called.
func (qs *queues) stepOut(r *Reservation) (unlock func()) {
	qs.mu.Lock()
	w := r.all[0].waiter
	if w == nil {
		return qs.mu.Unlock
	}
	qs.mu.Unlock()
	w.moving <- struct{}{}
	qs.mu.Lock()
	if n := w.number(); n >= 0 {
		w.group.out(n, n)
		qs.schedule(w.group)
	}
	return func() {
		qs.mu.Unlock()
		<-w.moving
	}
}

// number returns the index of a caller in its group, or -1 when it has left. The caller holds the mutex.
func (w *waiter) number() int {
	if w.group == nil {
		return -1
	}
	return slices.Index(w.group.callers, w)
}
