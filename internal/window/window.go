// Package window is the arithmetic of every algorithm, as pure functions of time: no clock, no lock,
// no I/O. Times are microseconds since the Unix epoch, the precision of the Redis clock.
//
// A State is what one subject has been charged. Look answers what a call would find, Charge writes it
// down. The caller holds whatever lock is needed and passes times from one clock. A clock may go back:
// then what was charged later than now counts as charged now, so it never stays longer than a window. A caller does not pass
// on a step back of a millisecond or less, with which windows would hold more by the instants of the answers.
package window

import (
	"crypto/sha256"

	"example.com/sash/driver"
)

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

// A Name stands for the ID of a call or of a settlement of one subject: 63 bits of the ID's SHA-256. Two of the IDs that
// a subject remembers have the same name by chance once in 10^11 subjects. The zero Name is none.
type Name [8]byte

// CallName returns the name of a call's ID.
func CallName(id string) Name {
	n := name(id)
	n[0] &^= settles
	return n
}

// SettlementName returns the name of a settlement's ID, which is never that of a call.
func SettlementName(id string) Name {
	n := name(id)
	n[0] |= settles
	return n
}

// settles is the bit of a name's first byte that is set for a settlement.
const settles = 0x80

// Settles reports whether the name is that of a settlement.
func (n Name) Settles() bool { return n[0]&settles != 0 }

func name(id string) Name {
	sum := sha256.Sum256([]byte(id))
	return Name(sum[:len(Name{})])
}
