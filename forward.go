package sash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/sash/driver"
)

// Units come back to a key by a settlement, a reward or higher limits, and by places that are given back before they begin. That leaves
// room before the first place of a queue. So the first caller asks the store to bring its place forward to now. That frees the caller's
// old place, and the next caller asks when the old place would have begun.
//
// A caller asks when the units that this process knows to be free almost cover its cost, because the store mostly has a few more. If the
// store has not, the caller asks again once its cost is covered. A store without room leaves the place as it is: other processes may have
// taken the units, or the move would delay later bookings. Other processes may also have given units back, which this process does not
// know. So while units come back now, and while the first place is farther away than a full limit puts it, the first caller also asks from
// time to time.
type forward struct {
	away   *group        // one of its callers is being brought forward, and is not in the group meanwhile
	back   chan struct{} // closed when that caller is back
	trades int           // newcomers that wait for back: until they have traded, no other place is brought forward
	free   int64         // units known to have come back that no caller has got since
	lacks  *group        // the group refused last: while it is the first, nobody asks with fewer free units than until
	until  int64
	gaps   []gap     // sorted by instant
	came   time.Time // when units or a place came back last

	polls bool          // units came back now, or the store had room unknown here, so other processes may give units back, too
	tried time.Time     // when the store was asked last
	heard time.Time     // when the store was asked last or a booking showed where it has room
	rest  time.Duration // from tried until the store is asked again
	rests time.Time     // until then, callers who wait for several subjects do not ask
}

// A gap is a place that was given back and can be filled when it begins, or just a number of units that came back now.
//
// The units of a place that was brought forward are in use for a window from now on. If they leave later than the place would have begun,
// the gap begins when they leave, and is shorter than a window: only a caller who frees a place there can fill it. If the limits were raised
// since the booking, they have room when the place would have begun.
type gap struct {
	at     int64     // on the store's clock
	starts time.Time // on this process's clock
	units  int64
	behind int64 // the instant to which the place was brought forward; 0 for a gap that is a whole place
}

// enough returns how many units have to be free before asking for a cost is worth it.
func enough(cost int64) int64 { return cost - cost/10 }

const (
	mostGaps = 4096 // the most gaps of a key that are remembered, the nearest ones
	nearGaps = 64   // a store surely looks at a gap that has no more places of a group before it
)

// The times between two questions whether a place can be brought forward.
const (
	leastBring = 10 * time.Millisecond
	bringAgain = 2  // times as long after each refusal
	bringOften = 16 // times in the longest window at least
	bringFlows = 4  // times as long as the units of a place take to flow, at least
)

// next returns the caller who asks next, and when; nil if there is none. The caller holds the mutex.
func (q *queue) next(now time.Time) (w *waiter, at time.Time) {
	if q.away != nil || q.trades > 0 {
		return nil, at
	}
	for len(q.gaps) > 0 && !q.gaps[0].starts.After(now) {
		q.free = add(q.free, q.gaps[0].units)
		q.gaps = q.gaps[1:]
	}
	first, at := q.first(now, MaxUnits), now
	if first == nil {
		first, at = q.first(q.rests, MaxUnits), q.rests
	} else if covered := q.first(now, q.free); covered != nil && (first != q.lacks || q.free >= q.until) {
		first = covered
	} else {
		at = first.places[0].starts
		half := time.Duration(first.wants[first.main].Policy.Longest()) * time.Microsecond / 2
		if q.polls {
			at = q.tried.Add(q.rest)
		} else if first.places[0].starts.Sub(now) > half {
			at = q.heard.Add(half)
		}
		if len(q.gaps) > 0 && q.gaps[0].starts.Before(at) {
			at = q.gaps[0].starts
		}
	}
	if first == nil {
		return nil, at
	}
	last := first.places[0].starts.Add(-leastBring)
	if at.After(last) || now.After(last) { // the place starts soon, and callers behind it would start before the answer
		return nil, at
	}
	return first.callers[0], at
}

// first returns the group with the earliest place that could come forward with so many free units. The caller holds the mutex.
func (q *queue) first(now time.Time, free int64) (first *group) {
	for _, g := range q.groups {
		switch p := &g.places[0]; {
		case g.fixed, p.source != driver.FromStore, len(g.wants) > 1 && q.rests.After(now), enough(g.wants[g.main].Cost) > free:
		case first == nil || p.starts.Before(first.places[0].starts):
			first = g
		}
	}
	return first
}

func add(a, b int64) int64 { return min(a+min(b, MaxUnits), MaxUnits) }

// wake wakes the caller who asks next. The caller holds the mutex.
func (q *queue) wake() {
	if w, _ := q.next(time.Now()); w != nil {
		signal(w.look)
	}
}

// gain records units that came back now, or a place that came back before it begins. The caller holds the mutex.
func (q *queue) gain(g gap) {
	if g.starts.IsZero() {
		q.free, q.polls = add(q.free, g.units), true
		n := slices.IndexFunc(q.gaps, func(later gap) bool { return later.behind != 0 && later.behind == g.at })
		if n >= 0 { // fewer units leave then
			q.gaps[n].units = max(0, q.gaps[n].units-g.units)
		}
	} else {
		n, _ := slices.BinarySearchFunc(q.gaps, g.at, func(g gap, at int64) int { return cmp.Compare(g.at, at) })
		q.gaps = slices.Insert(q.gaps, n, g)
		q.gaps = q.gaps[:min(len(q.gaps), mostGaps)]
	}
	q.wake()
}

// booked records a booking under the limits of a group, for which the store has just looked for the earliest instant. The booking fills a
// gap there. No gap before it has room for its cost, if the booking is for this subject alone or nobody waits for this subject alone, and
// if no units came back while the store was asked. A store looks at no gap that is far away.
func (q *queue) booked(p *place, want *driver.Request, subjects int) {
	n := slices.IndexFunc(q.groups, func(g *group) bool { return g.wants[g.main].Policy.Equal(want.Policy) })
	if n < 0 {
		return
	}
	q.heard = time.Now()
	surely := (subjects == 1 || !q.alone()) && !q.came.After(p.starts.Add(-micros(p.delay)-p.took))
	for i := range q.gaps {
		switch g := &q.gaps[i]; {
		case surely && g.behind == 0 && g.at < p.at && q.groups[n].before(g.at) <= nearGaps:
			g.units = min(g.units, want.Cost-1)
		case g.at == p.at:
			g.units -= want.Cost
		}
	}
	q.gaps = slices.DeleteFunc(q.gaps, func(g gap) bool { return g.units <= 0 })
	switch {
	case !surely || p.delay == 0:
	case q.free >= want.Cost:
		q.free = enough(want.Cost) - 1
	case q.free >= enough(want.Cost) && q.away == nil:
		q.lacks, q.until = q.first(q.heard, MaxUnits), want.Cost
	}
}

// noRoom records that the store had no room for a call of a group, when this many units were free. If the call is over several subjects,
// another subject may have no room: then callers who wait for this subject alone ask first. Otherwise the free units are kept for the
// first caller, who asks again when more come back. If the free units covered the cost, others have taken them. Units that came back while
// the store was asked may still make room together with those that it had left.
func (q *queue) noRoom(g *group, now time.Time, free int64) {
	want, subjects := &g.wants[g.main], len(g.wants)
	first, last := pauses(want)
	q.rest = min(max(bringAgain*q.rest, first), last)
	if subjects > 1 && q.alone() {
		q.rests = now.Add(q.rest)
		return
	}
	q.tried, q.heard = now, now
	q.lacks, q.until = q.first(now, MaxUnits), want.Cost
	switch came := q.free - free; {
	case q.lacks != nil && q.lacks != g:
		q.until = enough(q.lacks.wants[q.lacks.main].Cost)
	case free >= want.Cost && came > 0:
		q.free, q.lacks = add(came, want.Cost-1), nil
	case free >= want.Cost:
		q.free, q.lacks = 0, nil
	}
}

func (q *queue) alone() bool {
	return slices.ContainsFunc(q.groups, func(g *group) bool { return len(g.wants) == 1 && !g.fixed })
}

// pauses returns how long a queue pauses before it asks again, at first and at most. The first pause is half of the time in which the fastest
// limit admits the cost of a place. The longest is a part of the longest window: half of it, where few such costs fit into one.
func pauses(want *driver.Request) (first, last time.Duration) {
	longest := want.Policy.Longest()
	flow := longest // under periods of the calendar alone
	for _, l := range want.Policy.Limits {
		if l.Window > 0 {
			flow = min(flow, int64(float64(l.Window)/float64(l.Units)*float64(want.Cost)))
		}
	}
	last = max(micros(max(longest/bringOften, min(bringFlows*flow, longest/2))), leastBring)
	return min(max(micros(flow/2), leastBring), last), last
}

// Raise gives higher limits to the callers of this process who wait for the key under the limits of l: the same windows in the same order,
// with no fewer units. These callers start in their order, as early as the store has room under the higher limits, and none later than
// before. Callers who come afterwards bring the limits of their own limiter. If those are the higher ones, they stand behind.
//
// Callers under other limits, of several subjects at once, or whose booking the store is just making keep their limits, and so do callers
// in other processes: each process calls Raise for its own. Errors are [ErrInvalidKey] and [ErrInvalidLimit], and then nothing has changed.
func (l *Limiter) Raise(key string, limits ...Limit) error {
	full, err := l.key(key)
	if err != nil {
		return err
	}
	to, err := newPolicy(&l.opts, limits)
	if err != nil {
		return err
	}
	for i, old := range l.policy.Limits {
		if len(to.Limits) != len(l.policy.Limits) || !old.SameWindow(&to.Limits[i]) || old.Units > to.Limits[i].Units {
			return fmt.Errorf("%w: %v is not raised to %v: the windows have to be the same, and the units no fewer", ErrInvalidLimit, l.policy.named, limits)
		}
	}
	if !l.policy.Equal(&to.Policy) {
		l.queues.raise(full, l.policy, to)
		l.queues.give(full, gap{units: MaxUnits}, true) // until the store has no more
	}
	return nil
}

// raise replaces the policy of callers who wait for a key, and puts them into the group of callers who have the new one.
func (qs *queues) raise(key string, from, to *policy) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[key]
	if q == nil {
		return
	}
	for _, a := range q.asking {
		if a.policy.Equal(&from.Policy) {
			a.policy = to
		}
	}
	for _, g := range slices.Clone(q.groups) {
		if len(g.wants) != 1 || !g.wants[0].Policy.Equal(&from.Policy) {
			continue
		}
		g.wants[0].Policy, g.raised = &to.Policy, true
		n := slices.IndexFunc(q.groups, func(o *group) bool {
			same := len(o.wants) == 1 && o.wants[0].Cost == g.wants[0].Cost && o.wants[0].Policy.Equal(&to.Policy)
			return same && o != g && !g.newest.jumped(&o.newest)
		})
		if n < 0 {
			continue
		}
		into := q.groups[n]
		if q.away == g { // its caller comes back to it
			g, into = into, g
		}
		for i, w := range g.callers {
			w.group = into
			into.in(into.before(g.places[i].at), w, g.places[i])
		}
		g.callers, g.places, into.raised = nil, nil, true
		qs.schedule(g)
		qs.schedule(into)
	}
}

// step does the work of the first caller of a group, and nothing for other callers. It starts the callers whose places have begun or, if it
// is time, asks the store to bring the caller's place forward to now. It returns when to try again, unless the caller is woken before. The
// caller is not in the group while the store is asked. If the store fails, nobody knows when the place is. The caller then gets the error,
// and until units come back the queue asks as seldom as if none ever had.
func (qs *queues) step(ctx context.Context, w *waiter) (due <-chan time.Time) {
	w.moving <- struct{}{}
	defer func() { <-w.moving }()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.number() != 0 {
		return nil
	}
	now, g := time.Now(), w.group
	q, p, main := g.queue, g.places[0], &g.wants[g.main]
	if !p.starts.After(now) {
		for len(g.places) > 0 && !g.places[0].starts.After(now) {
			g.out(0, 0)
		}
		qs.schedule(g)
		return nil
	}
	if next, at := q.next(now); next != w {
		q.wake()
		return time.After(p.starts.Sub(now))
	} else if at.After(now) {
		return time.After(at.Sub(now)) // before the place begins
	}
	var sets []driver.Settlement
	for _, want := range g.wants {
		sets = append(sets, driver.Settlement{Request: want, At: p.at, Delay: max(p.delay, 1), Source: p.source})
	}
	g.callers, g.places = g.callers[1:], g.places[1:]
	q.away, q.back = g, make(chan struct{})
	free := q.free
	qs.schedule(g)
	qs.mu.Unlock()

	at := int64(0)
	err := atOnce(1, func(int) (err error) { // it recovers a panic, after which the queue would stand still
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		at, err = extend(ctx, w.parts[0].limiter.store, sets...)
		return err
	})[0]

	qs.mu.Lock()
	q.away = nil
	close(q.back)
	now = time.Now()
	left := gap{at: p.at, starts: p.starts, units: main.Cost}
	if at != 0 {
		p = place{at: at, starts: now, source: p.source}
	}
	n := g.before(p.at - 1) // it was the first
	g.in(n, w, p)
	switch {
	case at != 0:
		first, _ := pauses(main)
		q.rest = min(q.rest, first)
		q.polls = q.polls || q.free < enough(main.Cost) // others gave some back
		q.tried, q.heard = now, now
		q.free, q.lacks = max(0, q.free-main.Cost), nil
		if leaves := at + main.Policy.Limits[w.parts[g.main].fullest()].Window; leaves > left.at && !g.raised {
			left = gap{at: leaves, starts: now.Add(micros(leaves - at)), units: main.Cost, behind: at}
		}
		q.gain(left)
		g.out(n, n)
	case errors.Is(err, ErrUnsupported), errors.Is(err, driver.ErrApart):
		g.fixed = true
	case err != nil:
		q.polls, q.free, w.err = false, 0, storeError(context.Background(), err)
		q.tried, q.heard = now, now
		g.out(n, n)
	default:
		q.noRoom(g, now, free)
	}
	qs.schedule(g)
	return nil
}
