package sash

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"example.com/sash/driver"
)

// An Algorithm says how a window is counted. It belongs to the whole limiter.
type Algorithm = driver.Algorithm

// The algorithms. Only the first three keep the bound of a sliding window.
const (
	// SlidingLog is exact: at most Units in any trailing window. The default. When a subject has more than 8,192 charges, a
	// unit is held up to a 1,024th of its window longer.
	SlidingLog = driver.SlidingLog
	// SortedSetLog is as exact. Redis keeps one sorted-set member a call, readable with ZRANGE.
	// It takes several times the memory of SlidingLog, and rejects limits above 100,000.
	SortedSetLog = driver.SortedSetLog
	// SlidingBuckets is SlidingLog in which calls within one step of Resolution share an entry: never more
	// than Units in any window, and a unit is held at most Resolution longer than necessary.
	SlidingBuckets = driver.SlidingBuckets
	// SlidingCounter weighs the last window's count by its overlap. Constant space, but up to nearly twice Units through one window.
	SlidingCounter = driver.SlidingCounter
	// FixedWindow counts since the last multiple of the window. Up to twice Units around a boundary.
	FixedWindow = driver.FixedWindow
	// GCRA spaces calls at Units per Window and lets Units through at once: up to twice Units in one window.
	GCRA = driver.GCRA
)

// Algorithms returns all algorithms, the default first.
func Algorithms() []Algorithm {
	return []Algorithm{SlidingLog, SortedSetLog, SlidingBuckets, SlidingCounter, FixedWindow, GCRA}
}

// A policy is checked limits, in the form for stores and with their names.
type policy struct {
	driver.Policy
	named  []Limit
	labels []string // the names that results use
}

// policies keeps a few policies of limits that callers give with their calls, such as those of their plans, so that most calls need not
// check and copy them. A new policy takes a free place, or replaces one at random. It is safe for concurrent use.
type policies [8]atomic.Pointer[policy]

func (ps *policies) of(opts *Options, limits []Limit) (*policy, error) {
	i := 0
	for ; i < len(ps); i++ {
		if p := ps[i].Load(); p == nil {
			break
		} else if slices.Equal(p.named, limits) {
			return p, nil
		}
	}
	p, err := newPolicy(opts, limits)
	if err == nil && i == len(ps) {
		i = rand.IntN(i)
	}
	if err == nil {
		ps[i].Store(p)
	}
	return p, err
}

// NewPolicy checks limits and options as [New] does, and returns them in the form that stores take, for
// programs that call a store without a Limiter. The error is [ErrInvalidLimit].
func NewPolicy(opts *Options, limits ...Limit) (*driver.Policy, error) {
	p, err := newPolicy(opts, limits)
	if err != nil {
		return nil, err
	}
	return &p.Policy, nil
}

func newPolicy(opts *Options, limits []Limit) (*policy, error) {
	opts = cmp.Or(opts, &Options{})
	switch {
	case !slices.Contains(Algorithms(), opts.Algorithm):
		return nil, fmt.Errorf("%w: unknown algorithm %v", ErrInvalidLimit, opts.Algorithm)
	case len(limits) == 0:
		return nil, fmt.Errorf("%w: a limiter needs at least one limit", ErrInvalidLimit)
	case len(limits) > driver.MaxLimits:
		return nil, fmt.Errorf("%w: %d limits on one subject; the most is %d", ErrInvalidLimit, len(limits), driver.MaxLimits)
	case (opts.Algorithm == SlidingBuckets) != (opts.Resolution != 0):
		return nil, fmt.Errorf("%w: algorithm sliding-buckets needs a resolution, and only that one has one", ErrInvalidLimit)
	case opts.Resolution < 0 || opts.Resolution%time.Microsecond != 0:
		return nil, fmt.Errorf("%w: the resolution must be whole microseconds, not %v", ErrInvalidLimit, opts.Resolution)
	}
	block, err := opts.Block.driver()
	if err != nil {
		return nil, err
	}
	p := &policy{
		Policy: driver.Policy{
			Algorithm: opts.Algorithm, Resolution: opts.Resolution, CountRefused: opts.CountRefused, Block: block,
			Limits: make([]driver.Limit, len(limits)),
		},
		named:  slices.Clone(limits),
		labels: make([]string, len(limits)),
	}
	for i, l := range limits {
		p.labels[i] = l.label()
		if err := p.check(l, limits[:i]); err != nil {
			return nil, err
		}
		p.Limits[i] = l.driver()
	}
	return p, nil
}

func (p *policy) check(l Limit, earlier []Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	limit := l.driver()
	for i, e := range earlier {
		if p.Limits[i].SameWindow(&limit) {
			return fmt.Errorf("%w: %s and %s count over the same window; keep the smaller", ErrInvalidLimit, e, l)
		}
		if p.labels[i] == p.labels[len(earlier)] {
			return fmt.Errorf("%w: two limits are called %q", ErrInvalidLimit, p.labels[i])
		}
	}
	switch {
	case l.Period != 0 && (p.Algorithm == SlidingCounter || p.Algorithm == GCRA):
		return fmt.Errorf("%w: %s: algorithm %v has no calendar windows", ErrInvalidLimit, l, p.Algorithm)
	case l.Period == 0 && p.Resolution > l.Window:
		return fmt.Errorf("%w: %s: the resolution %v is longer than the window", ErrInvalidLimit, l, p.Resolution)
	case p.Algorithm == SortedSetLog && l.Units > mostEntries:
		return fmt.Errorf("%w: %s: algorithm sorted-set-log has at most %d units, as it keeps each call; sliding-log has room for more",
			ErrInvalidLimit, l, mostEntries)
	}
	return nil
}

func (p *policy) checkCost(cost int64) error {
	if cost < 1 {
		return fmt.Errorf("%w: %d units; a cost is at least 1, and Peek looks without one", ErrInvalidCost, cost)
	}
	for i := range p.Limits {
		if cost > p.Limits[i].Units {
			return fmt.Errorf("%w: a cost of %d units can never fit into %s", ErrCostAboveLimit, cost, p.labels[i])
		}
	}
	return nil
}

// A Block keeps out a subject that does not stop. Once the subject has been refused a number of times within a window, every
// call is refused for a time, although there may be room. Result.Blocked says so, and RetryAfter is at least the time until
// the block ends. Then counting begins anew. [Limiter.Reset] ends a block.
//
// Every refusal by the store counts, over all processes that share it, except those of peeks, penalties and rewards. The tries of Wait
// count, too. Of several subjects, those without room count. While the store is unavailable, each process that decides counts alone.
//
// Anybody whose calls of a key are refused can block that key. So the key should be something that callers prove, or an address, and not
// the name of an account that anybody can give. Calls under a Block are not booked. Limiters of one key with a Block share it.
type Block struct {
	// Refusals is the number of refusals that begins a block: 1 to 100. Zero is 5.
	Refusals int
	// Window is the time within which refusals count, up to a day. Zero is a minute.
	Window time.Duration
	// For is how long the block lasts, up to 30 days. It is required, except in the zero Block, which blocks nobody.
	For time.Duration
}

const (
	mostEntries     = 100_000 // of a sorted set
	defaultRefusals = 5
	mostRefusals    = 100
	defaultWindow   = time.Minute
	longestWindow   = 24 * time.Hour
	longestBlock    = 30 * 24 * time.Hour
)

func (b Block) driver() (driver.Block, error) {
	if b == (Block{}) {
		return driver.Block{}, nil
	}
	b.Refusals = cmp.Or(b.Refusals, defaultRefusals)
	b.Window = cmp.Or(b.Window, defaultWindow)
	switch {
	case b.Refusals < 1 || b.Refusals > mostRefusals:
		return driver.Block{}, fmt.Errorf("%w: a block after %d refusals: it takes 1 to %d", ErrInvalidLimit, b.Refusals, mostRefusals)
	case b.Window < time.Microsecond || b.Window > longestWindow || b.Window%time.Microsecond != 0:
		return driver.Block{}, fmt.Errorf("%w: a block after refusals within %v: whole microseconds, up to %v", ErrInvalidLimit, b.Window, longestWindow)
	case b.For < time.Microsecond || b.For > longestBlock || b.For%time.Microsecond != 0:
		return driver.Block{}, fmt.Errorf("%w: a block for %v: whole microseconds, up to %v", ErrInvalidLimit, b.For, longestBlock)
	}
	return driver.Block{Refusals: int64(b.Refusals), Window: b.Window.Microseconds(), Length: b.For.Microseconds()}, nil
}
