package failover

import (
	"example.com/sash/driver"
)

// Bounds of a debt.
const (
	steps    = 8  // parts of the longest window; charges that leave in the same part are added up
	mostEnds = 64 // ends of a debt; only calls that each bring other limits need more than a few
)

// A debt is the local charges of one subject: units by the instant at which they have left, in microseconds since the
// epoch. So settlements find their charge in any order.
type debt struct {
	policy *driver.Policy // of the last charge
	units  map[int64]int64
}

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

// add records units that leave at an instant.
func (d *debt) add(units, end, now int64) {
	if _, joins := d.units[end]; !joins && len(d.units) > 2*steps {
		d.drop(now)
		if len(d.units) >= mostEnds {
			units, end = d.join(units, end)
		}
	}
	d.units[end] += units
}

// join removes the units that leave last and adds them to further units, which then leave at the later instant.
func (d *debt) join(units, end int64) (all, later int64) {
	var last int64
	for other := range d.units {
		last = max(last, other)
	}
	units += d.units[last]
	delete(d.units, last)
	return units, max(end, last)
}

// remove takes units back from those that leave at an instant.
func (d *debt) remove(units, end int64) {
	if d.units[end] -= units; d.units[end] <= 0 {
		delete(d.units, end)
	}
}

// drop forgets the units that have left.
func (d *debt) drop(now int64) {
	for end := range d.units {
		if end <= now {
			delete(d.units, end)
		}
	}
}

func (d *debt) sum() (units int64) {
	for _, n := range d.units {
		units += n
	}
	return units
}
