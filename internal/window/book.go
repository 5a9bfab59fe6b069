package window

import (
	"math"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// Bookings are entries of a log that are later than now.
//
//	      now - window          now        booking   the last booking
//	-------|---------------------|------------|---------|
//	       |   ...   ...   ...   |            |         |
//
// A booking goes behind all entries, to the earliest instant at which every limit has room. From the last entry on, the use of a window
// only falls, so that instant is found like the retry time of a refusal. Once units came back while bookings lay ahead, a new booking goes
// to the earliest instant at which it fits and delays none of them: see Earliest.
//
// A window that ends at a booking held at most its units when the booking was written. A later charge before that booking is made only if
// each window that ends at a booking has room for the charge, too. A window that ends between two entries holds no more than the window
// that ends at the earlier entry. So no window exceeds its limit, whether it ends now or ahead.
//
// A clock that goes back moves bookings with it, because callers wait in real time. A step of a millisecond or less moves none: with
// such a step a server corrects a clock that ran ahead for a moment, and bookings had not moved ahead with it.
//
// Bookings share an entry only at the same instant: the end of a step of the resolution would be too late for a window that ends before it.
type booked struct {
	// written is the time of the last charge, or zero while no booking lies ahead. After a clock went back, an entry later
	// than now is a charge if it is not later than written, and otherwise a booking.
	written int64
	// gaps is set if units came back since bookings lie ahead.
	gaps bool
	// A clock that went back has moved entries between these two instants. So a charge found there may be another one than
	// before. from is zero if no clock went back.
	to, from int64
}

// shifted reports whether a clock that went back may have moved a booking to or away from an instant.
func (l *Log) shifted(at int64) bool {
	return l.booked != nil && l.booked.to < at && at <= l.booked.from
}

// Until returns the time of the last booking if that is later than now, and zero otherwise. Look or redate was called at now.
func (l *Log) Until(now int64) int64 {
	if l.booked == nil || !l.later(now) {
		return 0
	}
	return l.slot(l.head - 1).at
}

// Book charges at the instant that Place returns, and sets out to the statuses as of that instant, with times from now. If the instant is
// farther ahead than within, each limit without room until then refuses, with the time until it has room; the rest of out is as of now.
func Book(l *Log, now, within, cost int64, limits []driver.Limit, out []driver.Status) (at int64, refusals uint64) {
	if !(l.later(now) && l.redate(now)) && l.look(now, cost, limits, out) == 0 {
		return now, Decide(l, now, cost, limits, false, out)
	}
	at, ok := l.Place(now, within, cost, limits)
	if !ok {
		return now, l.Refuse(now, max(now, l.Until(now)), within, cost, limits, out)
	}
	l.ChargeAt(now, at, cost, limits)
	l.LookFrom(now, at, limits, out)
	return at, 0
}

// Place returns the instant at which Book would book a request, and whether it may. Look or redate was called at now.
func (l *Log) Place(now, within, cost int64, limits []driver.Limit) (at int64, ok bool) {
	if within > 1 && l.Gaps(now) { // a choice asks each subject for room at once, with a within of 1
		at = l.Earliest(now, cost, limits)
	} else {
		at = l.Behind(max(now, l.Until(now)), cost, limits)
	}
	return at, at-now <= within && !l.Crowded(now)
}

// Gaps reports whether units came back before bookings that lie ahead of now.
func (l *Log) Gaps(now int64) bool { return l.booked != nil && l.booked.gaps && l.later(now) }

// Earliest returns the earliest instant, not before from, at which every limit has room. The limits also need room at every later booking
// in whose window the charge would count. If the search takes too many steps, Earliest returns an instant behind all entries.
//
// The use of a window rises at each booking and falls where an entry leaves it. So Earliest looks at these instants in order, for the
// first one after which no use is too high for a window. A period of the calendar has room at all its instants, or at none.
func (l *Log) Earliest(from, cost int64, limits []driver.Limit) int64 {
	const none = math.MaxInt64
	var old [driver.MaxLimits]int     // the first entry that counts in the window of each limit
	var ends [driver.MaxLimits]int64  // the end of the period of each calendar limit
	var closed [driver.MaxLimits]bool // whether that period has no room
	longest := int64(0)
	for i := range limits {
		if limits[i].Period == 0 {
			old[i], longest = l.after(from-limits[i].Window), max(longest, limits[i].Window)
		}
	}
	for t, at, next, steps := from, int64(none), l.after(from), 0; steps <= threshold.Log.Gaps; steps++ {
		full := false
		for i := range limits {
			limit := &limits[i]
			if limit.Period == 0 {
				full = full || int64(l.before(next)-l.before(old[i]))+cost > limit.Units && (at == none || t < at+limit.Window)
				continue
			}
			if t >= ends[i] {
				var cut int64
				cut, ends[i] = limit.Cut(t)
				closed[i] = int64(l.before(l.after(ends[i]-1))-l.before(l.after(cut)))+cost > limit.Units
			}
			full = full || at == none && closed[i]
		}
		if full {
			at = none
		} else if at == none {
			at = t
		}
		switch {
		case at != none && (next == l.head || t >= at+longest):
			return at
		case next == l.head:
			return l.Behind(t, cost, limits)
		}
		t = l.slot(next).at
		for i := range limits {
			if limits[i].Period == 0 {
				t = min(t, l.slot(old[i]).at+limits[i].Window)
			} else if closed[i] {
				t = min(t, ends[i])
			}
		}
		for i := range limits {
			for limits[i].Period == 0 && old[i] < next && l.slot(old[i]).at+limits[i].Window <= t {
				old[i]++
			}
		}
		if l.slot(next).at == t {
			next++
		}
	}
	return l.Behind(max(from, l.Until(from)), cost, limits)
}

// Behind returns the earliest instant, not before from, at which every limit has room. No entry is later than from.
func (l *Log) Behind(from, cost int64, limits []driver.Limit) int64 {
	at := from
	for i := range limits {
		at = max(at, l.earliest(from, cost, &limits[i]))
	}
	return at
}

// earliest is Behind for one limit.
func (l *Log) earliest(from, cost int64, limit *driver.Limit) int64 {
	cut, stop := limit.Cut(from)
	p := l.after(cut)
	if p == l.head {
		return from
	}
	over := int64(l.slot(l.head-1).sum-l.before(p)) + cost - limit.Units
	switch {
	case over <= 0:
		return from
	case stop != 0:
		return stop
	}
	return l.leaves(p, uint64(over)) + limit.Window
}

// Crowded reports whether as many entries lie ahead as may.
func (l *Log) Crowded(now int64) bool { return l.head-l.after(now) >= threshold.Log.Ahead }

// Refuse sets out to the statuses as of now, and returns a bit for each limit that has no room until within has passed. No
// entry is later than from. If the log is crowded, each limit without room now refuses.
func (l *Log) Refuse(now, from, within, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	if l.Crowded(now) {
		within = 0
	}
	l.Look(now, 0, limits, out)
	for i := range limits {
		out[i].Retry = 0
		if wait := l.earliest(from, cost, &limits[i]) - now; wait > within {
			refusals |= 1 << i
			out[i].Retry = wait
		}
	}
	return refusals
}

// ChargeAt books at an instant, before entries that are later. Look or redate was called at now.
func (l *Log) ChargeAt(now, at, cost int64, limits []driver.Limit) {
	if at == now {
		l.add(now, cost, limits)
		return
	}
	l.widen(limits)
	if l.booked == nil {
		l.booked = new(booked)
	}
	if l.later(now) {
		l.booked.written = max(l.booked.written, now)
	} else {
		l.booked.written, l.booked.gaps = now, false
	}
	if p := l.after(at) - 1; p >= l.lo && l.slot(p).at == at {
		l.join(p, at, cost)
		return
	}
	l.put(now, at, cost, limits)
}

// LookFrom sets out to the statuses as of an instant, with times from now.
func (l *Log) LookFrom(now, at int64, limits []driver.Limit, out []driver.Status) {
	if l.later(at) {
		l.lookAhead(at, 0, limits, out)
	} else {
		l.look(at, 0, limits, out)
	}
	for i := range limits {
		out[i].Retry = 0
		out[i].Release += at - now
		out[i].Reset += at - now
	}
}

func (l *Log) lookAhead(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	until := l.slot(l.head - 1).at
	for i := range limits {
		limit := &limits[i]
		used := l.most(now, limit)
		s := driver.Status{Remaining: max(0, limit.Units-used), Reset: until + limit.Window - now}
		if _, stop := limit.Cut(until); stop != 0 {
			s.Reset = stop - now
		}
		if s.Remaining < limit.Units {
			s.Release = l.earliest(until, s.Remaining+1, limit) - now
		}
		if used+cost > limit.Units {
			refusals |= 1 << i
		}
		out[i] = s
	}
	if refusals != 0 {
		retry := l.Behind(until, cost, limits) - now
		for i := range limits {
			if refusals&(1<<i) != 0 {
				out[i].Retry = retry
			}
		}
	}
	return refusals
}

// most returns the most units in any window of a limit in which a charge of now counts: the window that ends now, and the
// windows that end at bookings. A limit with too many bookings to look at counts as full.
func (l *Log) most(now int64, limit *driver.Limit) int64 {
	cut, stop := limit.Cut(now)
	p := l.after(cut)
	if stop != 0 {
		return int64(l.before(l.after(stop-1)) - l.before(p))
	}
	q := l.after(now)
	used := int64(l.before(q) - l.before(p))
	for n := 0; q < l.head; q++ {
		u := l.slot(q)
		if u.at >= now+limit.Window {
			break
		}
		if n++; n > threshold.Log.Walk {
			return max(used, limit.Units)
		}
		if l.slot(p).at <= u.at-limit.Window {
			p = l.after(u.at - limit.Window)
		}
		used = max(used, int64(u.sum-l.before(p)))
	}
	return used
}

func (l *Log) put(now, at, cost int64, limits []driver.Limit) {
	l.room(now, 0, false, limits)
	q := l.after(at)
	sum := l.before(q) + uint64(cost)
	l.head++
	for p := l.head - 1; p > q; p-- {
		e := l.slot(p - 1)
		*l.slot(p) = entry{e.at, e.sum + uint64(cost)}
	}
	*l.slot(q) = entry{at, sum}
}

// shift moves the bookings from position q on to position p, back in time as far as the clock. It reports whether there are any.
func (l *Log) shift(p, q int, now, written int64) (ahead bool) {
	b := l.booked
	if b != nil { // a booking may move to the instant that a charge had
		if b.written = 0; b.from == 0 {
			b.to = now
		}
		b.to, b.from = min(b.to, now), max(b.from, l.slot(l.head-1).at)
	}
	if q == l.head {
		l.head = p
		return false
	}
	b.written = now
	lost := l.before(q) - l.before(p)
	for ; q < l.head; p, q = p+1, q+1 {
		e := l.slot(q)
		*l.slot(p) = entry{e.at - (written - now), e.sum - lost}
	}
	l.head = p
	return true
}
