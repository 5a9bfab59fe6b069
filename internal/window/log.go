package window

import (
	"math"
	"math/bits"
	"slices"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// A Log is the exact sliding window: the time and units of every charge that can still count.
//
//	      cut = now - window                      now
//	-------|--------------------------------------|
//	 gone  |  first counted   ...   last          |     used = sum(last) - sum(before first)
//
// Each entry carries the sum of all units up to it. So one search and one subtraction find the use of any window, or the instant at
// which a number of units has left. Entries later than now are bookings: see book.go.
//
// Some calls share an entry, which counts from the latest of them: calls within a step of the Resolution, calls within the same periods
// while every limit so far is of the calendar, and more once a ring of 8,192 entries is full (see merge). So a unit may be held longer.
//
// An entry is dropped when it is older than the longest window that the log was ever used with. If refused calls are charged too, an entry
// is also dropped when the entries after it hold more units than the largest limit ever used. An entry holds at most [driver.MaxUnits],
// which fill any limit. A full entry may stand for more units than it holds, so nothing is given back from it.
type Log struct {
	Resolution   int64 // at least 1
	CountRefused bool
	slid         bool // the log was used with a limit that is not of the calendar

	ring  []entry // len is a power of two, or zero; at most 4 for each entry, and 4
	lo    int     // position of the oldest entry; position p is in slot p & (len-1)
	head  int     // position after the newest entry
	gone  uint64  // the sum before position lo
	keep  int64   // the longest window that the log was ever used with
	units int64   // the most units of a limit that the log was ever used with

	moved int64 // the latest time from which a clock that went back has moved entries; zero when none has

	booked *booked // nil until the first booking
}

type entry struct {
	at  int64
	sum uint64 // units of all entries up to this one, modulo 2^64
}

const (
	leastRing   = 4
	entryBytes  = 16
	bookedBytes = 32
)

// full returns the units that an entry holds after so many were charged to it.
func full(units uint64) uint64 { return min(units, uint64(threshold.Log.Units)) }

// Bytes returns the bytes that the log has allocated beyond its first ring.
func (l *Log) Bytes() int {
	n := entryBytes * max(0, len(l.ring)-leastRing)
	if l.booked != nil {
		n += bookedBytes
	}
	return n
}

// Full reports whether a charge may make the log grow.
func (l *Log) Full() bool { return l.head-l.lo == len(l.ring) && l.head > l.lo }

// Grows returns the most bytes by which a charge of now may make the log grow.
func (l *Log) Grows(now int64, limits []driver.Limit) int {
	if !l.Full() || l.slot(l.lo).at <= now-l.keep || l.joins(l.head-1, now, limits) {
		return 0
	}
	return entryBytes * len(l.ring)
}

func (l *Log) slot(p int) *entry { return &l.ring[p&(len(l.ring)-1)] }

func (l *Log) before(p int) uint64 {
	if p == l.lo {
		return l.gone
	}
	return l.slot(p - 1).sum
}

// after returns the first position whose entry is later than cut, or head.
func (l *Log) after(cut int64) int {
	if l.lo == l.head || l.slot(l.lo).at > cut {
		return l.lo
	}
	if l.slot(l.head-1).at <= cut {
		return l.head
	}
	x, y := l.lo+1, l.head-1
	for x < y {
		mid := int(uint(x+y) / 2)
		if l.slot(mid).at > cut {
			y = mid
		} else {
			x = mid + 1
		}
	}
	return x
}

// leaves returns the time of the entry with which the sum reaches goal, from position p on.
func (l *Log) leaves(p int, goal uint64) int64 {
	base := l.before(p)
	if first := l.slot(p); first.sum-base >= goal {
		return first.at // the usual case, of one unit
	}
	x, y := p, l.head-1
	for x < y {
		mid := int(uint(x+y) / 2)
		if l.slot(mid).sum-base >= goal {
			y = mid
		} else {
			x = mid + 1
		}
	}
	return l.slot(x).at
}

func (l *Log) later(now int64) bool { return l.head > l.lo && l.slot(l.head-1).at > now }

// Look implements State.
func (l *Log) Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	if l.later(now) && l.redate(now) {
		return l.lookAhead(now, cost, limits, out)
	}
	return l.look(now, cost, limits, out)
}

func (l *Log) look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		cut, stop := limit.Cut(now)
		s := driver.Status{Remaining: limit.Units}
		var used int64
		p := l.after(cut)
		if p < l.head {
			used = int64(l.slot(l.head-1).sum - l.before(p))
		}
		if used > 0 {
			s.Remaining = max(0, limit.Units-used)
			s.Release, s.Reset = stop-now, stop-now
			if stop == 0 {
				s.Release = l.leaves(p, uint64(max(1, used-limit.Units+1))) + limit.Window - now
				s.Reset = l.slot(l.head-1).at + limit.Window - now
			}
		}
		if used+cost > limit.Units {
			refusals |= 1 << i
			s.Retry = s.Release
			if stop == 0 {
				s.Retry = l.leaves(p, uint64(used+cost-limit.Units)) + limit.Window - now
			}
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State.
func (l *Log) Charge(now, cost int64, limits []driver.Limit) { l.add(now, cost, limits) }

// add charges, and reports whether every earlier unit still leaves at the same time as before.
func (l *Log) add(now, cost int64, limits []driver.Limit) (plain bool) {
	ahead, p := l.later(now) && l.redate(now), l.head-1
	l.widen(limits)
	if ahead {
		l.booked.written = max(l.booked.written, now)
		p = l.after(now) - 1
	} else if l.booked != nil {
		l.booked.written = 0
	}
	switch {
	case l.joins(p, now, limits):
		plain = !ahead && l.slot(p).at == now
		l.join(p, now, cost)
	case ahead:
		l.put(now, now, cost, limits)
	default:
		plain = l.append(now, now, cost, limits)
	}
	return plain
}

func (l *Log) widen(limits []driver.Limit) {
	l.keep = max(l.keep, (&driver.Policy{Limits: limits}).Longest())
	for i := range limits {
		l.units = max(l.units, limits[i].Units)
		l.slid = l.slid || limits[i].Period == 0
	}
}

// join adds a charge to an entry, and dates the entry to an instant that is not earlier.
func (l *Log) join(p int, at, cost int64) {
	before := l.before(p)
	units := l.slot(p).sum - before
	l.slot(p).at = at
	more := full(units+uint64(cost)) - units
	for ; p < l.head; p++ {
		l.slot(p).sum += more
	}
}

// append adds a charge as a new entry behind all others, and reports the same as add.
func (l *Log) append(now, at, cost int64, limits []driver.Limit) (plain bool) {
	sum := l.before(l.head) + uint64(cost)
	plain = l.room(now, sum, l.CountRefused, limits)
	*l.slot(l.head) = entry{at, sum}
	l.head++
	return plain
}

// room makes room for an entry, with which the sum will be as given. It drops entries that cannot count any more and, if
// outweigh is set, those that newer ones outweigh. It reports whether each remaining entry leaves at the same time as before.
func (l *Log) room(now int64, sum uint64, outweigh bool, limits []driver.Limit) (plain bool) {
	for ; l.lo < l.head; l.lo++ {
		oldest := l.slot(l.lo)
		outweighed := outweigh && sum-oldest.sum > uint64(l.units)
		if oldest.at > now-l.keep && oldest.sum != l.gone && !outweighed {
			break
		}
		l.gone = oldest.sum
	}
	size := len(l.ring)
	full := l.head-l.lo == size
	merges := full && size >= threshold.Log.Entries
	if merges {
		l.merge(now, limits)
	}
	if n := l.head - l.lo; full && 4*n >= 3*size {
		l.resize(size)
	} else if 4*n+4 < size && (size < threshold.Log.Entries || n == 0) { // Settle looks for charges that merged
		l.resize(n)
	}
	return !merges
}

// merge joins charges that are not later than now and lie within one step of time, in an entry that counts from the latest of
// them. So the log never admits more, and holds a unit longer by less than a step. It merges nothing across the beginning of
// a window or a period of the limits, so what these hold stays the same. Entries without units are dropped.
func (l *Log) merge(now int64, limits []driver.Limit) {
	var begins [driver.MaxLimits + 1]int64
	cuts := append(begins[:0], now-l.keep)
	for i := range limits {
		cut, _ := limits[i].Cut(now)
		cuts = append(cuts, cut)
	}
	slices.Sort(cuts)
	first, from, sum := l.after(now), int64(math.MaxInt64), uint64(0) // the entry that earlier ones join if not earlier than from
	for p := first - 1; p >= l.lo; p-- {
		e, before := *l.slot(p), l.before(p)
		if e.sum == before || e.at >= from && sum-before < uint64(threshold.Log.Units) {
			continue
		}
		for len(cuts) > 1 && e.at <= cuts[len(cuts)-1] {
			cuts = cuts[:len(cuts)-1]
		}
		cut := cuts[len(cuts)-1]
		from, sum = max(e.at-e.at%step(now-cut, now-e.at), cut+1), e.sum
		first--
		*l.slot(first) = e
	}
	l.lo = first
}

// step returns the time within which charges of an age share an entry, seen from a window: the largest power of two that is
// at most a 1,024th of the window and at most a 128th of the age, because other calls may bring shorter windows.
func step(window, age int64) int64 {
	return 1 << (bits.Len64(uint64(max(1, min(window, 8*age)/threshold.Log.Steps))) - 1)
}

// Settle implements State. The charge is in the entry of its own time, or in the entry that it shares. If a clock went back, a charge made
// before the clock caught up is looked for only in an entry of its own time. If the charge is not found, additional units are charged to a
// later entry, and units to give back stay until they leave. Units of a full entry stay as well.
func (l *Log) Settle(now, at, more int64, limits []driver.Limit) {
	if l.head == l.lo {
		return
	}
	p, charged := l.after(at-1), l.slot(l.head-1).at // the last entry that is no booking
	if l.booked != nil && l.booked.written != 0 {
		charged = max(now, l.booked.written)
	}
	sure := at > l.moved // no clock that went back has moved the charge away, or another one there
	switch {
	case p < l.head && l.slot(p).at == at && (more > 0 || !l.shifted(at)):
	case p < l.head && sure && l.shared(now, at, l.slot(p).at, limits):
	case more < 0:
		return
	case p == l.head || l.slot(p).at > charged:
		p = max(l.lo, l.after(charged)-1)
	}
	units := int64(l.slot(p).sum - l.before(p))
	if more = min(more, threshold.Log.Units-units); units+more < 0 || more < 0 && units >= threshold.Log.Units {
		return
	}
	if more < 0 && l.booked != nil {
		l.booked.gaps = true
	}
	for q := p; q < l.head; q++ {
		l.slot(q).sum += uint64(more)
	}
	for l.head > l.lo && l.slot(l.head-1).sum == l.before(l.head-1) {
		l.head--
	}
}

// shared reports whether the first entry that is not earlier than a charge holds it.
func (l *Log) shared(now, at, entry int64, limits []driver.Limit) bool {
	most := step(l.keep, now-at)
	return at/l.Resolution == entry/l.Resolution || onePeriod(at, entry, limits, false) ||
		len(l.ring) >= threshold.Log.Entries && at/most == entry/most
}

// Reward implements State. It stops at a full entry, which may stand for more than it holds, and at an entry that lies
// ahead.
func (l *Log) Reward(now, units int64, limits []driver.Limit) (given int64) {
	l.redate(now)
	cut := now
	for i := range limits {
		from, _ := limits[i].Cut(now)
		cut = min(cut, from)
	}
	p := l.after(cut)
	base, end := l.before(p), p
	for end < l.head && int64(l.before(end)-base) < units {
		if e := l.slot(end); e.at > now || int64(e.sum-l.before(end)) >= threshold.Log.Units {
			break
		}
		end++
	}
	given = min(units, int64(l.before(end)-base))
	if given > 0 && l.booked != nil {
		l.booked.gaps = true
	}
	for q := p; q < l.head; q++ {
		e := l.slot(q)
		e.sum -= min(e.sum-base, uint64(given))
	}
	for l.head > l.lo && l.slot(l.head-1).sum == l.before(l.head-1) {
		l.head--
	}
	return given
}

// Lift takes a charge away, but that of a booking only if it lies ahead. It reports false if it does not find the charge.
func (l *Log) Lift(now, at, cost int64, limits []driver.Limit, booked bool) bool {
	if booked && (at <= now || !l.redate(now)) {
		return false
	}
	sum := l.before(l.head)
	l.Settle(now, at, -cost, limits)
	return l.before(l.head) != sum
}

// Clone returns a copy that later changes of the log do not affect.
func (l *Log) Clone() Log {
	c := *l
	c.ring = slices.Clone(l.ring)
	if l.booked != nil {
		c.booked = new(*l.booked)
	}
	return c
}

// Expires implements State.
func (l *Log) Expires() int64 {
	if l.head == l.lo {
		return 0
	}
	return l.slot(l.head-1).at + l.keep
}

// joins reports whether a charge at now shares the entry at p, which is not later: both are within a step of the resolution,
// or no limit slides. No entry is shared across a boundary of a calendar limit.
func (l *Log) joins(p int, now int64, limits []driver.Limit) bool {
	if p < l.lo {
		return false
	}
	at := l.slot(p).at
	step := at == now || l.Resolution > 1 && at/l.Resolution == now/l.Resolution
	return (step || !l.slid) && onePeriod(at, now, limits, step)
}

// onePeriod reports whether two instants are in one period of each limit. A limit that slides has one only if step is set.
func onePeriod(at, later int64, limits []driver.Limit, step bool) bool {
	for i := range limits {
		if _, stop := limits[i].Cut(at); later >= stop && (stop != 0 || !step) {
			return false
		}
	}
	return true
}

// redate reports whether bookings lie ahead of now. If the clock went back, redate merges the entries from now until the last write
// into one of now, and moves bookings with the clock. Entries that had left the longest window by the last write stay dropped.
func (l *Log) redate(now int64) (ahead bool) {
	if !l.later(now) { // callers in a hurry check this themselves, where it is inlined
		return false
	}
	last := *l.slot(l.head - 1)
	written := last.at
	if l.booked != nil && l.booked.written != 0 {
		written = l.booked.written
	}
	if now >= written {
		return true
	}
	if p := l.after(written - l.keep); p > l.lo {
		l.gone, l.lo = l.before(p), p
	}
	p, q := l.after(now-1), l.after(written)
	l.moved = max(l.moved, last.at)
	if q > p {
		*l.slot(p) = entry{now, l.before(p) + full(l.before(q)-l.before(p))}
		p++
	}
	return l.shift(p, q, now, written)
}

// resize makes the ring long enough for more than n entries, and at most twice as long.
func (l *Log) resize(n int) {
	size := max(leastRing, 1<<bits.Len(uint(n)))
	ring := make([]entry, size)
	for p := l.lo; p < l.head; p++ {
		ring[p&(size-1)] = *l.slot(p)
	}
	l.ring = ring
}
