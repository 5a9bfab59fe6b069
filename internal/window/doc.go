// Package window is the arithmetic of every algorithm, as pure functions of time: no clock, no lock,
// no I/O. Times are microseconds since the Unix epoch, the precision of the Redis clock.
//
// A State is what one subject has been charged. Look answers what a call would find, Charge writes it
// down. The caller holds whatever lock is needed and passes times from one clock. A clock may go back:
// then what was charged later than now counts as charged now, so it never stays longer than a window.
package window

import "example.com/sash/driver"

// A State holds the charges of one subject under one algorithm.
type State interface {
	// Look fills one status a limit for a call of the given cost and returns a bit for each limit
	// that refuses it. Cost 0 asks nothing and is refused only by a limit that is already exceeded.
	Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64)
	// Charge records cost units at now, whether or not there is room.
	Charge(now, cost int64, limits []driver.Limit)
	// Settle adds more units, or takes some away when more is negative, to what Charge recorded at an
	// earlier instant, as far as it still counts at now.
	Settle(now, at, more int64, limits []driver.Limit)
	// Reward takes units away from the oldest charges that count under the limits at now, and returns how many.
	Reward(now, units int64, limits []driver.Limit) (given int64)
	// Expires returns the instant from which the state is as good as none.
	Expires() int64
}
