package sash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/sash/driver"
)

// Units come back to a key by a settlement, a reward or a reset, and by places that are given back before they begin. That
// leaves room before the first place of those who wait. So the first caller asks the store to bring its place forward to now,
// which frees the place that it had, and the next one asks when that would have begun. So it is when limits are raised, to which
// the places then belong: see Raise.
//
// What this process knows to be free says when to ask: it counts units that come back, and keeps the instants of places that were given
// back. A caller whose cost they cover asks. A store that has no room leaves the place as it is: other processes may have taken the units,
// or bookings behind it would be delayed. They may have given units back, too, of which nobody knows here; so while units come back now,
// and while the first place is farther away than a full limit puts it, the first caller also asks from time to time.
type forward struct {
	key    string
	queues []*queue      // of the key; none is empty, but while its only place is moved
	away   *queue        // a place of it is being brought forward, and its caller is not in the queue meanwhile
	back   chan struct{} // closed when it is back
	free   int64         // units that are known to have come back, and that nobody asked for since
	gaps   []gap         // by their instants

	polls bool          // units came back now, so that other processes may give some back, too
	found bool          // the store had room of which nobody knew here
	asked time.Time     // when the store was asked last
	heard time.Time     // when it was, or a booking showed where it has room
	pause time.Duration // until it is asked again
	rests time.Time     // until when those who wait for several subjects do not ask
}

// A gap is a place that was given back, and can be filled when it begins.
type gap struct {
	at     int64     // on the store's clock
	starts time.Time // on this process's clock
	units  int64
}

const (
	mostGaps = 4096 // of a key that are remembered, the nearest
	nearGaps = 64   // places of a queue before a gap that a store surely looks at
)

// The times between two questions whether a place can be brought forward.
const (
	leastBring = 10 * time.Millisecond
	neverBring = time.Duration(math.MaxInt64)
	bringAgain = 2  // times as long after each refusal
	bringOften = 16 // times in the longest window at least
	bringFlows = 4  // times as long as the units of a place take to flow, at least
)

// next returns the caller who asks next, and when. There is none if it is nil. The caller holds the mutex.
func (f *forward) next(now time.Time) (t *turn, at time.Time) {
	if f.away != nil {
		return nil, at
	}
	for len(f.gaps) > 0 && !f.gaps[0].starts.After(now) {
		f.free = add(f.free, f.gaps[0].units)
		f.gaps = f.gaps[1:]
	}
	var first, covered, resting *queue
	for _, q := range f.queues {
		if len(q.places) == 0 || q.fixed {
			continue
		}
		if f.rests.After(now) && len(q.newest.sets) > 1 {
			resting = q
			continue
		}
		if first == nil || q.places[0].starts.Before(first.places[0].starts) {
			first = q
		}
		if q.cost() <= f.free && (covered == nil || q.places[0].starts.Before(covered.places[0].starts)) {
			covered = q
		}
	}
	switch {
	case first == nil && resting == nil:
		return nil, at
	case first == nil:
		first, at = resting, f.rests
	case covered != nil:
		first, at = covered, now
	default:
		at = now.Add(neverBring)
		half := time.Duration(first.policy.Longest()) * time.Microsecond / 2
		if f.polls || f.found {
			at = f.asked.Add(f.pause)
		} else if first.places[0].starts.Sub(now) > half {
			at = f.heard.Add(half)
		}
		if len(f.gaps) > 0 && f.gaps[0].starts.Before(at) {
			at = f.gaps[0].starts
		}
	}
	if at.Add(leastBring).After(first.places[0].starts) { // it starts soon enough
		return nil, at
	}
	return first.callers[0], at
}

func add(a, b int64) int64 { return min(a+min(b, MaxUnits), MaxUnits) }

// wake wakes the caller who asks next. The caller holds the mutex.
func (f *forward) wake() {
	if t, _ := f.next(time.Now()); t != nil {
		select {
		case t.look <- struct{}{}:
		default:
		}
	}
}

// came records units of the key that came back now.
func (f *forward) came(units int64) {
	f.free, f.polls = add(f.free, units), true
	f.wake()
}

// leave records a place that was given back before it begins.
func (f *forward) leave(g gap) {
	n, _ := slices.BinarySearchFunc(f.gaps, g.at, func(g gap, at int64) int { return cmp.Compare(g.at, at) })
	f.gaps = slices.Insert(f.gaps, n, g)
	f.gaps = f.gaps[:min(len(f.gaps), mostGaps)]
	f.wake()
}

// booked records a booking under the limits of a queue, for which the store has just looked for the earliest instant: it fills a
// gap there, and before it no gap has room for its cost, if it is of this subject alone or nobody else waits for that. A store
// looks at no gap that is far away.
func (f *forward) booked(p *place, subject int) {
	cost, policy := p.sets[subject].Request.Cost, p.sets[subject].Request.Policy
	n := slices.IndexFunc(f.queues, func(q *queue) bool { return len(q.places) > 0 && q.policy.Equal(policy) })
	if n < 0 {
		return
	}
	f.heard = time.Now()
	surely := len(p.sets) == 1 || !f.alone()
	for i := range f.gaps {
		switch g := &f.gaps[i]; {
		case surely && g.at < p.at && f.queues[n].before(g.at) <= nearGaps:
			g.units = min(g.units, cost-1)
		case g.at == p.at:
			g.units -= cost
		}
	}
	f.gaps = slices.DeleteFunc(f.gaps, func(g gap) bool { return g.units <= 0 })
	if surely && p.sets[0].Delay > 0 {
		f.free = min(f.free, cost-1)
	}
}

// refused records that the store had no room for a request over one subject or several. For several it may be another subject
// that has none: then those who wait for this one alone ask before they do.
func (f *forward) refused(req *driver.Request, now time.Time, subjects int) {
	first, last := pauses(req)
	f.pause = min(max(bringAgain*f.pause, first), last)
	if subjects > 1 && f.alone() {
		f.rests = now.Add(f.pause)
		return
	}
	f.asked, f.heard, f.found, f.free = now, now, false, 0
}

// alone reports whether somebody waits for the key alone.
func (f *forward) alone() bool {
	return slices.ContainsFunc(f.queues, func(q *queue) bool { return len(q.newest.sets) == 1 && !q.fixed })
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
	longest := req.Policy.Longest()
	if flow > longest { // only periods of the calendar
		flow = longest
	}
	last = max(time.Duration(max(longest/bringOften, bringFlows*flow))*time.Microsecond, leastBring)
	return min(max(time.Duration(flow/2)*time.Microsecond, leastBring), last), last
}

// comeForward makes the places of a queue come forward with those of its key: of several, the one that has least left for
// its cost.
func (q *lines) comeForward(line *queue, holder []*Reservation) {
	left := func(i int) float64 {
		return float64(holder[i].result.Remaining) / float64(line.newest.sets[i].Request.Cost)
	}
	for i := range holder {
		if left(i) < left(line.main) {
			line.main = i
		}
	}
	req := &line.newest.sets[line.main].Request
	line.policy = req.Policy
	f := q.forward[req.Key]
	if f == nil {
		f = &forward{key: req.Key, heard: time.Now(), polls: time.Since(q.lowered) < time.Duration(req.Policy.Longest())*time.Microsecond}
		q.forward[req.Key] = f
	}
	line.forward, f.queues = f, append(f.queues, line)
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
		l.lines.raise(full, l.policy, to)
		l.lines.give(full, gap{units: more}, true)
	}
	return nil
}

// raise gives those who wait for a key under a policy another one.
func (q *lines) raise(key string, from, to *policy) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.byKey[key]; l != nil {
		for _, w := range l.waiters {
			if w.policy.Equal(&from.Policy) {
				w.policy = to
			}
		}
	}
	if q.forward[key] == nil {
		return
	}
	for _, line := range slices.Clone(q.forward[key].queues) {
		if len(line.newest.sets) > 1 || !line.policy.Equal(&from.Policy) {
			continue
		}
		own := line.alike
		line.policy, line.alike = &to.Policy, alike(&line.newest.sets[0].Request, &to.Policy)
		if q.alike[own] == line {
			delete(q.alike, own)
		}
		other := q.alike[line.alike]
		if other == nil {
			q.alike[line.alike] = line
			continue
		}
		for i, t := range line.callers { // each keeps its place
			t.line = other
			other.in(other.before(line.places[i].at), t, line.places[i])
		}
		line.callers, line.places = nil, nil
		q.tidy(line)
		q.tidy(other)
	}
}

// bring asks the store to bring the place of the first caller forward to now, if it is time, and returns how long to wait before it
// asks again. The caller is not in the queue meanwhile. If the store fails, nobody knows when the place is: the caller gets the error,
// and the key asks no more until units come back again.
func (r *Reservation) bring(ctx context.Context, t *turn) (wait time.Duration) {
	store, q := r.limiter.store, r.limiter.lines
	t.moving <- struct{}{}
	defer func() { <-t.moving }()
	q.mu.Lock()
	line, n := t.find()
	if n != 0 {
		q.mu.Unlock()
		return neverBring
	}
	f := line.forward
	if next, at := f.next(time.Now()); next != t || time.Until(at) > 0 {
		if wait = max(time.Until(at), time.Microsecond); next != t {
			f.wake()
			wait = neverBring
		}
		q.mu.Unlock()
		return wait
	}
	p := line.places[0]
	sets := slices.Clone(p.sets)
	fixed := store.Powers()&driver.CanExtend == 0
	for i := range sets {
		set := &sets[i]
		fixed = fixed || set.Source != driver.FromStore
		set.Delay = max(set.Delay, 1)
	}
	main := &sets[line.main].Request
	main.Policy = line.policy
	if fixed {
		line.fixed = true
		f.wake()
		q.mu.Unlock()
		return neverBring
	}
	line.callers, line.places = line.callers[1:], line.places[1:]
	f.away, f.back = line, make(chan struct{})
	q.tidy(line)
	q.mu.Unlock()

	at := int64(0)
	err := atOnce(1, func(int) (err error) { // which recovers a panic: the key would come forward no more
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
		defer cancel()
		at, err = extend(ctx, store, sets...)
		return err
	})[0]

	q.mu.Lock()
	defer q.mu.Unlock()
	f.away = nil
	close(f.back)
	now := time.Now()
	if at != 0 {
		first, _ := pauses(main)
		if f.pause = min(f.pause, first); f.found { // where there was room twice there may be more, as where many start early
			f.pause = (f.pause * 3 / 4).Truncate(time.Microsecond)
		}
		f.asked, f.heard, f.found = now, now, f.free < main.Cost
		f.free = max(0, f.free-main.Cost)
		f.leave(gap{at: p.at, starts: p.starts, units: main.Cost})
		for i := range sets {
			sets[i].At, sets[i].Delay = at, 0
		}
		p = place{at: at, starts: now, sets: sets}
	}
	n = line.before(p.at - 1) // it was the first
	line.in(n, t, p)
	switch {
	case at != 0:
		line.out(n, n)
	case errors.Is(err, ErrUnsupported), errors.Is(err, driver.ErrApart):
		line.fixed = true
	case err != nil:
		f.polls, f.free, t.failed = false, 0, err
		line.out(n, n)
	default:
		f.refused(main, now, len(sets))
	}
	q.tidy(line)
	return time.Microsecond
}
