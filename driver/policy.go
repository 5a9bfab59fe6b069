package driver

import (
	"fmt"
	"slices"
	"time"
)

// An Algorithm says how a window is counted. It belongs to the whole policy.
type Algorithm uint8

// The algorithms. Only the first three keep the bound of a sliding window; package sash documents each.
const (
	SlidingLog Algorithm = iota
	SortedSetLog
	SlidingBuckets
	SlidingCounter
	FixedWindow
	GCRA
)

var algorithmNames = [...]string{"sliding-log", "sorted-set-log", "sliding-buckets", "sliding-counter", "fixed-window", "gcra"}

// String returns the algorithm's name, such as "sliding-log".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// MarshalText writes the algorithm's name.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an algorithm's name.
func (a *Algorithm) UnmarshalText(text []byte) error {
	if i := slices.Index(algorithmNames[:], string(text)); i >= 0 {
		*a = Algorithm(i)
		return nil
	}
	return fmt.Errorf("sash: unknown algorithm %.80q; there are sliding-log, sorted-set-log, sliding-buckets, sliding-counter, fixed-window and gcra", text)
}

// Exact reports whether the algorithm never admits more than a limit's units in any sliding window.
func (a Algorithm) Exact() bool { return a <= SlidingBuckets }

// Bounds of a Policy.
const (
	// MaxLimits is the most limits of one policy.
	MaxLimits = 8
	// MaxUnits is the most units of a limit, and the highest cost.
	MaxUnits = 1<<40 - 1
)

// A Policy is what a store needs to know about a limiter: its limits, and how they are counted. It does not
// change once made, and is safe for concurrent use. Limiters check policies; stores trust them.
type Policy struct {
	// Algorithm says how windows are counted.
	Algorithm Algorithm
	// Resolution is the step of SlidingBuckets, whole microseconds; zero for the other algorithms.
	Resolution time.Duration
	// CountRefused charges refused calls too.
	CountRefused bool
	// Block blocks subjects that are refused too often, although there may be room. The zero Block blocks none. Only a
	// store with [CanBlock] gets policies with any other Block.
	Block Block
	// Limits are 1 to MaxLimits limits, in the order of an answer's statuses.
	Limits []Limit
}

// A Block blocks a subject that is refused too often. Times are in microseconds.
//
// A store counts the refusals that it decides: of calls that charge, with or without an ID, and of several subjects those whose limits
// refuse, even if another subject is blocked. When it has counted Refusals within Window, it blocks the subject for Length: it refuses the
// subject's requests, charges and counts nothing, and answers [Answer].Blocked. Then counting begins anew. Peeks, Forced requests and
// [GiveBack] do not count. A block does not stop Forced requests, GiveBack, and repetitions of a call with an ID. All policies of a key,
// an algorithm and a resolution that have a Block share one block. A reset under any of these policies ends it.
type Block struct {
	Refusals int64 // 1 to 100; zero is no Block
	Window   int64
	Length   int64
}

// Equal reports whether two policies have the same limits, in the same order and counted in the same way.
func (p *Policy) Equal(q *Policy) bool {
	if p == q {
		return true
	}
	return p.Algorithm == q.Algorithm && p.Resolution == q.Resolution && p.CountRefused == q.CountRefused && p.Block == q.Block &&
		slices.EqualFunc(p.Limits, q.Limits, func(l, m Limit) bool { return l.Units == m.Units && l.SameWindow(&m) })
}

// Bookable reports whether a store can book under the policy. The approximate algorithms and the sorted set cannot tell
// bookings from charges that are later than now because a clock went back. A charged refusal has no place in a queue,
// and a subject that may be blocked is not kept waiting.
func (p *Policy) Bookable() bool {
	return !p.CountRefused && p.Block.Refusals == 0 && (p.Algorithm == SlidingLog || p.Algorithm == SlidingBuckets)
}

// Longest returns how long a charge can matter, in microseconds: the longest of the windows.
func (p *Policy) Longest() (longest int64) {
	for i := range p.Limits {
		longest = max(longest, p.Limits[i].Length())
	}
	return longest
}

// MostUnits returns the highest cost that fits into every limit.
func (p *Policy) MostUnits() int64 {
	most := int64(MaxUnits)
	for i := range p.Limits {
		most = min(most, p.Limits[i].Units)
	}
	return most
}
