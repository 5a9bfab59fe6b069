package sash

import (
	"fmt"
	"time"

	"example.com/sash/internal/window"
)

// An Algorithm says how a window is counted. It belongs to the whole limiter.
type Algorithm uint8

// The algorithms. Only the first three keep the bound of a sliding window.
const (
	// SlidingLog is exact: at most Units in any trailing window. The default.
	SlidingLog Algorithm = iota
	// SortedSetLog is as exact, kept on Redis as one sorted-set member a call, readable with ZRANGE.
	// It takes several times the memory of SlidingLog.
	SortedSetLog
	// SlidingBuckets is SlidingLog with calls of the same Resolution sharing an entry: never more than
	// Units in any window, and a unit is held at most Resolution longer than it has to be.
	SlidingBuckets
	// SlidingCounter weighs the last window's count by its overlap. Constant space, approximate: a
	// caller can get close to twice Units through one window.
	SlidingCounter
	// FixedWindow counts since the last multiple of the window. Up to twice Units around a boundary.
	FixedWindow
	// GCRA spaces calls at Units per Window and lets Units through at once: up to twice Units in one
	// window.
	GCRA
)

var algorithmNames = [...]string{"sliding-log", "sorted-set-log", "sliding-buckets", "sliding-counter", "fixed-window", "gcra"}

// Algorithms returns all algorithms, the default first.
func Algorithms() []Algorithm {
	return []Algorithm{SlidingLog, SortedSetLog, SlidingBuckets, SlidingCounter, FixedWindow, GCRA}
}

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
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("sash: unknown algorithm %q; there are sliding-log, sorted-set-log, sliding-buckets, sliding-counter, fixed-window and gcra", clip(string(text)))
}

// Exact reports whether the algorithm never admits more than Units in any sliding window.
func (a Algorithm) Exact() bool { return a <= SlidingBuckets }

// Bounds of a Policy.
const (
	// MaxLimits is the most limits that one subject can have.
	MaxLimits = 8
	// MaxEntries is the most entries that a log may need for one limit: Units, or the number of
	// resolution steps in the window when that is smaller.
	MaxEntries = window.MaxEntries
)

// A Policy is what stores need to know about a limiter: limits that were checked, and how they are
// counted. It does not change once made, and is safe for concurrent use.
type Policy struct {
	algorithm    Algorithm
	resolution   time.Duration
	countRefused bool
	limits       []Limit
	windows      []window.Limit
	smallest     int // index of the limit with the fewest units
}

// NewPolicy checks limits and options; a nil opts is the default. The error is [ErrInvalidLimit].
func NewPolicy(opts *Options, limits ...Limit) (*Policy, error) {
	if opts == nil {
		opts = &Options{}
	}
	p := &Policy{
		algorithm:    opts.Algorithm,
		resolution:   opts.Resolution,
		countRefused: opts.CountRefused,
		limits:       append([]Limit(nil), limits...),
		windows:      make([]window.Limit, len(limits)),
	}
	if int(p.algorithm) >= len(algorithmNames) {
		return nil, fmt.Errorf("%w: unknown algorithm %v", ErrInvalidLimit, p.algorithm)
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w: a limiter needs at least one limit", ErrInvalidLimit)
	}
	if len(limits) > MaxLimits {
		return nil, fmt.Errorf("%w: %d limits on one subject; the most is %d", ErrInvalidLimit, len(limits), MaxLimits)
	}
	if (p.algorithm == SlidingBuckets) != (p.resolution != 0) {
		return nil, fmt.Errorf("%w: algorithm sliding-buckets needs a resolution, and only that one has one", ErrInvalidLimit)
	}
	if p.resolution < 0 || p.resolution%time.Microsecond != 0 {
		return nil, fmt.Errorf("%w: the resolution must be whole microseconds, not %v", ErrInvalidLimit, p.resolution)
	}
	for i, l := range p.limits {
		if err := p.check(l, p.limits[:i]); err != nil {
			return nil, err
		}
		p.windows[i] = window.Limit{Units: l.Units, Span: l.span()}
		if l.Units < p.limits[p.smallest].Units {
			p.smallest = i
		}
	}
	return p, nil
}

func (p *Policy) check(l Limit, earlier []Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	for _, e := range earlier {
		if e.Window == l.Window && e.Period == l.Period && (l.Period == 0 || e.zone().String() == l.zone().String()) {
			return fmt.Errorf("%w: %s and %s count over the same window; keep the smaller", ErrInvalidLimit, e, l)
		}
		if e.label() == l.label() {
			return fmt.Errorf("%w: two limits are called %q", ErrInvalidLimit, l.label())
		}
	}
	if l.Period != 0 && (p.algorithm == SlidingCounter || p.algorithm == GCRA) {
		return fmt.Errorf("%w: %s: algorithm %v has no calendar windows", ErrInvalidLimit, l, p.algorithm)
	}
	if l.Period == 0 && p.resolution > l.Window {
		return fmt.Errorf("%w: %s: the resolution %v is longer than the window", ErrInvalidLimit, l, p.resolution)
	}
	if !p.algorithm.Exact() {
		return nil
	}
	length := time.Duration(l.span().Length()) * time.Microsecond
	entries := l.Units
	if p.resolution > 0 {
		entries = min(entries, int64(length/p.resolution)+2)
	}
	if entries > MaxEntries {
		step := (length/(MaxEntries-2) + time.Millisecond).Truncate(time.Millisecond)
		return fmt.Errorf("%w: %s: the log of one subject could need %d entries, more than %d: use algorithm sliding-buckets with a resolution of at least %v",
			ErrInvalidLimit, l, entries, MaxEntries, step)
	}
	return nil
}

// Algorithm returns how windows are counted.
func (p *Policy) Algorithm() Algorithm { return p.algorithm }

// Resolution returns the step of SlidingBuckets; zero for the other algorithms.
func (p *Policy) Resolution() time.Duration { return p.resolution }

// CountRefused reports whether refused calls are charged too.
func (p *Policy) CountRefused() bool { return p.countRefused }

// Limits returns the limits, in the order of a Result's. The caller must not change them.
func (p *Policy) Limits() []Limit { return p.limits }

// Windows returns the limits in the form of internal/window, for the stores of this module.
func (p *Policy) Windows() []window.Limit { return p.windows }

// Equal reports whether two policies hold a subject to the same: limits in the same order, counted in the
// same way. Their names do not matter.
func (p *Policy) Equal(q *Policy) bool {
	if p == q {
		return true
	}
	if p.algorithm != q.algorithm || p.resolution != q.resolution || p.countRefused != q.countRefused || len(p.limits) != len(q.limits) {
		return false
	}
	for i, l := range p.limits {
		m := q.limits[i]
		if l.Units != m.Units || l.Window != m.Window || l.Period != m.Period || l.Period != 0 && l.zone().String() != m.zone().String() {
			return false
		}
	}
	return true
}

// checkCost returns an error for a cost that is wrong or can never fit.
func (p *Policy) checkCost(cost int64) error {
	if cost < 1 {
		return fmt.Errorf("%w: %d units; a cost is at least 1, and Peek looks without one", ErrInvalidCost, cost)
	}
	if l := &p.limits[p.smallest]; cost > l.Units {
		return fmt.Errorf("%w: a cost of %d units can never fit into %s", ErrCostAboveLimit, cost, l.label())
	}
	return nil
}
