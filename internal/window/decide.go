package window

import "example.com/sash/driver"

// Decide looks, charges if there is room (or always, if refused calls are charged too), and sets out to the statuses after
// that.
func Decide(s State, now, cost int64, limits []driver.Limit, countRefused bool, out []driver.Status) (refusals uint64) {
	refusals = s.Look(now, cost, limits, out)
	if cost == 0 || refusals != 0 && !countRefused {
		return refusals
	}
	log, ok := s.(*Log)
	switch {
	case !ok:
		s.Charge(now, cost, limits)
	case log.add(now, cost, limits) && refusals == 0:
		spend(now, cost, limits, out)
		return 0
	}
	if refusals != 0 {
		s.Look(now, cost, limits, out)
		return refusals
	}
	Left(s, now, limits, out)
	return 0
}

// Left sets out to the statuses after a call that was admitted, which does not wait: not even if the entry that it has
// joined counts in windows that end at bookings now.
func Left(s State, now int64, limits []driver.Limit, out []driver.Status) {
	s.Look(now, 0, limits, out)
	for i := range out {
		out[i].Retry = 0
	}
}

// spend updates the statuses of a log for a call that fits and has been charged to an entry of its own, the last to leave.
// Earlier entries leave when they would have left.
func spend(now, cost int64, limits []driver.Limit, out []driver.Status) {
	for i := range limits {
		limit, s := &limits[i], &out[i]
		s.Remaining -= cost
		s.Reset = limit.Window
		if limit.Period != 0 {
			_, stop := limit.Cut(now)
			s.Reset = stop - now
		}
		if s.Release == 0 {
			s.Release = s.Reset
		}
	}
}

// Again returns the refusals of a call that is repeated with its ID, from those of the first time and the statuses of a
// call of no cost now, perhaps under other limits. It sets how long such a call waits.
func Again(first uint64, out []driver.Status) (refusals uint64) {
	refusals = first & (1<<len(out) - 1)
	if first != 0 && refusals == 0 {
		refusals = 1 // of another limit
	}
	for i := range out {
		if refusals&(1<<i) != 0 {
			out[i].Retry = max(out[i].Retry, out[i].Release)
		} else {
			out[i].Retry = 0
		}
	}
	return refusals
}
