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
// room before the first place of those who wait. So the first caller asks the store to bring its place forward to now, which frees the
// place that it had, and the next one asks when that would have begun.
//
// A caller asks when its cost is almost covered by what this process knows to be free, units that came back and places that were given
// back: the store mostly has a few more. If it has not, the caller asks again once its cost is covered. A store that has no room leaves
// the place as it is: other processes may have taken the units, or bookings behind it would be delayed. They may have given units back, too, of which nobody knows here; so while units come back now,
// and while the first place is farther away than a full limit puts it, the first caller also asks from time to time.
type forward struct {
	away   *group        // a place of it is being brought forward, and its caller is not in the group meanwhile
	back   chan struct{} // closed when it is back
	trades int           // newcomers that wait for that: until they have traded, no other place is brought forward
	free   int64         // units that are known to have come back, and that nobody got since
	lacks  *group        // while its place is the first, nobody asks before
	until  int64         // as many units are free
	gaps   []gap         // by their instants
	came   time.Time     // when somebody gave back the last of either

	polls bool          // units came back now, so that other processes may give some back, too
	found bool          // the store had room of which nobody knew here
	tried time.Time     // when the store was asked last
	heard time.Time     // when it was, or a booking showed where it has room
	rest  time.Duration // until it is asked again
	rests time.Time     // until when those who wait for several subjects do not ask
}

// A gap is a place that was given back, and can be filled when it begins. Units that came back now have only their number.
//
// Where a place was brought forward, its units are in use until they leave the window from now on. If they leave later than the
// place began, the gap is behind them, and shorter than a window: only a caller who frees a place there can fill it. Limits that
// were raised since the booking have room beside them when the place begins.
type gap struct {
	at     int64     // on the store's clock
	starts time.Time // on this process's clock
	units  int64
	behind int64 // the instant to which a place was brought forward; 0 for a gap that is a whole place
}

// enough returns how many units have to be free for a question to be worth it.
func enough(cost int64) int64 { return cost - cost/10 }

const (
	mostGaps = 4096 // of a key that are remembered, the nearest
	nearGaps = 64   // places of a group before a gap that a store surely looks at
)

// The times between two questions whether a place can be brought forward.
const (
	leastBring = 10 * time.Millisecond
	bringAgain = 2  // times as long after each refusal
	bringOften = 16 // times in the longest window at least
	bringFlows = 4  // times as long as the units of a place take to flow, at least
)

// next returns the caller who asks next, and when. There is none if it is nil. The caller holds the mutex.
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
		if q.polls || q.found {
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
	if at.After(last) || now.After(last) { // it starts soon enough, and those behind it would start before the answer
		return nil, at
	}
	return first.callers[0], at
}

// first returns the group with the first place of those that can come forward with so many free units.
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

// gain records units that came back now, or a place that was given back before it begins. The caller holds the mutex.
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

// booked records a booking under the limits of a group, for which the store has just looked for the earliest instant: it fills a
// gap there, and before it no gap has room for its cost, if it is of this subject alone or nobody else waits for that, and no units came
// back while it was asked. A store looks at no gap that is far away.
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

// noRoom records that the store had no room for a request over one subject or several. For several it may be another subject
// that has none: then those who wait for this one alone ask before they do.
// What was free when it was asked is kept for the first caller, to start with what comes back later. If that covered its cost, others have
// got it; but units that came back after it was asked may make room with what it had left.
func (q *queue) noRoom(g *group, now time.Time, free int64) {
	want, subjects := &g.wants[g.main], len(g.wants)
	first, last := pauses(want)
	q.rest = min(max(bringAgain*q.rest, first), last)
	if subjects > 1 && q.alone() {
		q.rests = now.Add(q.rest)
		return
	}
	q.tried, q.heard, q.found = now, now, false
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

// pauses returns how long a queue pauses before it asks again: at first half of the time in which the units of a place flow
// at the fastest limit, and at last a part of the longest window, half of it where few units of that cost fit into one.
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

// Raise gives callers of this process who wait for the key under the limits of l higher ones: of the same windows in the same
// order, with no fewer units. Those who wait start as early as the store has room under these, in their order, and none later
// than before. Callers who come afterwards bring their own limits, those of a limiter [Limiter.With] the higher ones behind them.
//
// Those who wait under other limits, as another class does, for several subjects at once, or in other processes keep theirs, and
// so do those whose booking the store is just making. Every process calls Raise for its own. Errors are [ErrInvalidKey] and
// [ErrInvalidLimit], and then nothing has changed.
func (l *Limiter) Raise(key string, limits ...Limit) error {
	full, err := l.key(key)
	if err != nil {
		return err
	}
	to, err := newPolicy(&l.opts, limits)
	if err != nil {
		return err
	}
	more := int64(MaxUnits)
	for i, old := range l.policy.Limits {
		if len(to.Limits) != len(l.policy.Limits) || !old.SameWindow(&to.Limits[i]) || old.Units > to.Limits[i].Units {
			return fmt.Errorf("%w: %v is not raised to %v: the windows have to be the same, and the units no fewer", ErrInvalidLimit, l.policy.named, limits)
		}
		if diff := to.Limits[i].Units - old.Units; diff > 0 {
			more = min(more, diff)
		}
	}
	if !l.policy.Equal(&to.Policy) {
		l.queues.raise(full, l.policy, to)
		l.queues.give(full, gap{units: more}, true)
	}
	return nil
}

// raise gives those who wait for a key under a policy another one, and puts them into the group of those who have that.
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
		g.wants[0].Policy = &to.Policy
		for i := range g.places {
			g.places[i].raised = true
		}
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
		g.callers, g.places = nil, nil
		qs.schedule(g)
		qs.schedule(into)
	}
}

// step starts the callers of a group whose places have begun, if the caller is the first, or asks the store to bring its place forward to
// now, if it is time. It returns when to try again, if the caller is not woken before. The caller is not in the group while the store is
// asked. If the store fails, nobody knows when the place is: the caller gets the error, and the key asks as seldom as one to which no units
// came back until some do.
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
	policy := main.Policy
	g.callers, g.places = g.callers[1:], g.places[1:]
	q.away, q.back = g, make(chan struct{})
	free := q.free
	qs.schedule(g)
	qs.mu.Unlock()

	at := int64(0)
	err := atOnce(1, func(int) (err error) { // which recovers a panic: the key would come forward no more
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
	if p.raised = p.raised || main.Policy != policy; at != 0 {
		p = place{at: at, starts: now, source: p.source, raised: p.raised}
	}
	n := g.before(p.at - 1) // it was the first
	g.in(n, w, p)
	switch {
	case at != 0:
		first, _ := pauses(main)
		if q.rest = min(q.rest, first); q.found { // where there was room twice there may be more, as where many start early
			q.rest = (q.rest * 3 / 4).Truncate(time.Microsecond)
		}
		q.tried, q.heard, q.found = now, now, q.free < enough(main.Cost) || q.lacks == g && q.free < q.until
		q.free, q.lacks = max(0, q.free-main.Cost), nil
		if leaves := at + main.Policy.Limits[w.parts[g.main].fullest()].Window; leaves > left.at && !p.raised {
			left = gap{at: leaves, starts: now.Add(micros(leaves - at)), units: main.Cost, behind: at}
		}
		q.gain(left)
		g.out(n, n)
	case errors.Is(err, ErrUnsupported), errors.Is(err, driver.ErrApart):
		g.fixed = true
	case err != nil:
		q.polls, q.found, q.free, w.err = false, false, 0, storeError(context.Background(), err)
		q.tried, q.heard = now, now
		g.out(n, n)
	default:
		q.noRoom(g, now, free)
	}
	qs.schedule(g)
	return nil
}
