// Package window is the arithmetic of every algorithm, as pure functions of time: no clock, no lock,
// no I/O. Times are microseconds since the Unix epoch, the precision of the Redis clock.
//
// The caller holds the lock and passes times from one clock. If the clock goes back, a charge later than now counts as charged now, so
// it never stays longer than a window. A caller hides a step back of a millisecond or less: with it, windows would hold too much as seen
// from the instants of the answers.
package window

import (
	"crypto/sha256"
	"slices"

	"example.com/sash/driver"
)

// A State holds the charges of one subject under one algorithm.
type State interface {
	// Look fills in one status for each limit, for a call of the given cost, and returns a bit for each limit
	// that refuses the call. Cost 0 requests nothing: only a limit that is already exceeded refuses it.
	Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64)
	// Charge records cost units at now, whether or not there is room.
	Charge(now, cost int64, limits []driver.Limit)
	// Settle adds more units to what Charge recorded at an earlier instant, or takes units away if more
	// is negative. It changes only charges that still count at now.
	Settle(now, at, more int64, limits []driver.Limit)
	// Reward takes units away from the oldest charges that count under the limits at now, and returns how many.
	Reward(now, units int64, limits []driver.Limit) (given int64)
	// Expires returns the instant from which the state can be dropped.
	Expires() int64
	// Bytes returns about how many bytes the state has allocated beyond its first entries.
	Bytes() int
}

// A Name stands for the ID of a call or of a settlement of one subject: 63 bits of the ID's SHA-256. In one of 10^11
// subjects, two of the IDs that the subject remembers have the same name by chance. The zero Name is none.
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

// Settles reports whether the name belongs to a settlement.
func (n Name) Settles() bool { return n[0]&settles != 0 }

func name(id string) Name {
	sum := sha256.Sum256([]byte(id))
	return Name(sum[:len(Name{})])
}

// Decide looks, charges if there is room (or always, if refused calls are charged too), and then sets out to the statuses
// that result.
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

// Left sets out to the statuses after a call was admitted. An admitted call has no retry time, even if the entry that it
// has joined now counts in windows that end at bookings.
func Left(s State, now int64, limits []driver.Limit, out []driver.Status) {
	s.Look(now, 0, limits, out)
	for i := range out {
		out[i].Retry = 0
	}
}

// spend updates the statuses of a log for a call that has been charged to an entry of its own, the last to leave. Earlier
// entries leave at the same times as before.
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

// Again returns the limits that refuse a call repeated with its ID: the limits that refused it the first time. It sets the retry
// times in out, which holds the statuses of a call at no cost made now, perhaps under other limits.
func Again(first uint64, out []driver.Status) (refusals uint64) {
	refusals = first & (1<<len(out) - 1)
	if first != 0 && refusals == 0 {
		refusals = 1 // another limit refused
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

// A Block counts the refusals of a subject, and blocks the subject for a time when there are too many. The zero value and
// nil have counted none.
type Block struct {
	ends, length int64
	refusals     []int64 // the instants of the refusals that are counted
}

// NewBlock returns a Block with room for as many refusals as begin a block.
func NewBlock(refusals int64) *Block { return &Block{refusals: make([]int64, 0, refusals)} }

// Left returns the time until the block ends, or 0. Even if the clock went back, that is at most the block's length.
func (b *Block) Left(now int64) int64 {
	if b == nil {
		return 0
	}
	b.ends = min(b.ends, now+b.length)
	return max(0, b.ends-now)
}

// Refuse counts a refusal, and returns the length of the block that begins with it, or 0.
func (b *Block) Refuse(now int64, by *driver.Block) (begins int64) {
	for i := range b.refusals {
		b.refusals[i] = min(b.refusals[i], now)
	}
	b.refusals = slices.DeleteFunc(b.refusals, func(at int64) bool { return at <= now-by.Window })
	b.ends, b.length = 0, by.Length
	if b.refusals = append(b.refusals, now); int64(len(b.refusals)) < by.Refusals {
		return 0
	}
	b.refusals, b.ends = b.refusals[:0], now+by.Length
	return by.Length
}

// Bytes returns the bytes that the block has allocated.
func (b *Block) Bytes() int {
	if b == nil {
		return 0
	}
	return 48 + 8*cap(b.refusals)
}

// A CoolDown is the time for which callers leave a key alone.
type CoolDown struct {
	end, length int64
	guessed     bool
}

// Begin begins a cool-down at now, unless the current one ends as late or later.
func (s *CoolDown) Begin(now int64, c driver.CoolDown) {
	if s.At(now); now+c.Length > s.end {
		s.end, s.length, s.guessed = now+c.Length, c.Length, c.Guessed
	}
}

// At returns the cool-down as it is at now. If the clock went back to before the cool-down began, it begins
// now.
func (s *CoolDown) At(now int64) driver.CoolDown {
	if s.length == 0 || now >= s.Expires() {
		return driver.CoolDown{}
	}
	s.end = min(s.end, now+s.length)
	return driver.CoolDown{Length: s.length, Left: s.end - now, Guessed: s.guessed}
}

// Expires returns the instant from which the cool-down can be forgotten.
func (s *CoolDown) Expires() int64 { return s.end + max(s.length, 10_000_000) }

// Bar turns an answer into that of a subject that stays blocked for left microseconds: every limit refuses at least until then, and has
// no units left.
func Bar(a *driver.Answer, left int64) {
	var room [driver.MaxLimits]driver.Status
	statuses := room[:copy(room[:], a.Statuses())]
	for i := range statuses {
		s := &statuses[i]
		s.Retry, s.Reset = max(s.Retry, left), max(s.Reset, left)
		if s.Remaining > 0 {
			s.Release = left
		}
		s.Remaining, s.Release = 0, max(s.Release, left)
	}
	a.Set(a.At, 1<<len(statuses)-1, statuses)
	a.Blocked, a.Firm, a.Charged = true, true, 0
}

// Foresee turns the answer to a peek into the answer to a request of a cost: limits with fewer units left refuse it.
func Foresee(a *driver.Answer, cost int64) {
	var room [driver.MaxLimits]driver.Status
	statuses := room[:copy(room[:], a.Statuses())]
	refusals := a.Refusals
	for i := range statuses {
		if s := &statuses[i]; s.Remaining < cost {
			refusals |= 1 << i
			s.Retry = max(s.Retry, s.Release)
		}
	}
	a.Set(a.At, refusals, statuses)
}
