package failover

import (
	"maps"
	"slices"
	"time"

	"example.com/sash/driver"
)

// Bounds of a debt.
const (
	steps    = 8   // parts of the longest window; charges that leave in the same part are added up
	mostEnds = 512 // ends of a debt; only bookings, and a local clock that jumps or runs ahead, need more than a few
)

// A debt is the local charges of one account, by the instant at which they have left, in microseconds since the
// epoch. So settlements find their charge in any order.
type debt struct {
	policy *driver.Policy // of the charges
	leave  map[int64]*charge
	sent   int64 // when the account's ID was first sent to the store; 0 is never
}

// A charge is units that leave at the same time.
type charge struct {
	units  int64
	starts time.Time // when the first of them starts; zero if it has. The local clock may jump, this one does not
	first  int64     // the instant of the first of them
	last   int64     // and of the last
}

// newCharge returns a charge at an instant, a delay ahead, in microseconds.
func newCharge(units, at, delay int64) *charge {
	c := &charge{units: units, first: at, last: at}
	if delay > 0 {
		c.starts = time.Now().Add(time.Duration(delay) * time.Microsecond)
	}
	return c
}

// ahead returns the time until the first of the units starts: zero or less if it has.
func (c *charge) ahead() time.Duration {
	if c.starts.IsZero() {
		return 0
	}
	return time.Until(c.starts)
}

// has reports whether a charge of an instant can be part of this one, which may be nil.
func (c *charge) has(at int64) bool { return c != nil && c.first <= at && at <= c.last }

// end returns the instant from which no limit counts a charge any more. For sliding windows it is rounded up to a part
// of the longest window; the end of a calendar period is exact.
func end(policy *driver.Policy, at int64) (last int64) {
	windows := policy.Limits
	step := max(1, driver.Longest(windows)/steps)
	for _, w := range windows {
		_, stop := w.Cut(at)
		if w.Period == 0 {
			stop = (at + w.Window + step - 1) / step * step
		}
		last = max(last, stop)
	}
	return last
}

// add records a charge that leaves at an instant.
func (d *debt) add(c *charge, end int64) {
	other, joins := d.leave[end]
	if !joins && len(d.leave) >= mostEnds { // it joins the last, and both leave at the later instant
		last := slices.Max(slices.Collect(maps.Keys(d.leave)))
		other = d.leave[last]
		delete(d.leave, last)
		end = max(end, last)
	}
	if other != nil {
		starts := c.starts
		if other.starts.Before(starts) {
			starts = other.starts
		}
		c = &charge{c.units + other.units, starts, min(c.first, other.first), max(c.last, other.last)}
	}
	d.leave[end] = c
}

// drop forgets the charges that have left.
func (d *debt) drop() {
	now := time.Now().UnixMicro()
	maps.DeleteFunc(d.leave, func(end int64, _ *charge) bool { return end <= now })
}

// due returns the time until the first call starts that the debt owes units of, and whether it owes any.
func (d *debt) due() (in time.Duration, owes bool) {
	for _, c := range d.leave {
		if c.units == 0 {
			continue
		}
		if ahead := c.ahead(); !owes || ahead < in {
			in, owes = ahead, true
		}
	}
	return in, owes
}

// take removes the charges of calls that have started, or all, and returns them.
func (d *debt) take(all bool) *debt {
	taken := &debt{policy: d.policy, leave: make(map[int64]*charge), sent: d.sent}
	for end, c := range d.leave {
		if all || c.ahead() <= 0 {
			taken.leave[end] = c
			delete(d.leave, end)
		}
	}
	return taken
}

func (d *debt) units() (n int64) {
	for _, c := range d.leave {
		n += c.units
	}
	return n
}
