package sash

import (
	"cmp"
	"fmt"
	"time"

	"example.com/sash/driver"
)

// A Block keeps out a subject that does not stop: once it has been refused so many times within a window, every call is
// refused for a time, although there may be room. Result.Blocked says so, and RetryAfter is at least the time until the
// block ends. Then counting begins anew. [Limiter.Reset] ends it.
//
// What the store refuses counts: calls of every kind but peeks, penalties and rewards, of several subjects those that
// had no room, and the tries of Wait. The store decides and counts in one step, for all processes that share it. Package
// the denial cache passes refusals on until there is a block, and then answers from memory; coalesce and lease leave such calls
// to the store. A call over subjects in different places is looked at first, so it counts where it is refused first.
// While a store is unavailable, each process counts by itself, if it decides at all.
//
// Whoever can have calls of a key refused can block it. So its key is what callers prove, or an address, and not the
// name of an account that anybody can give.
//
// Calls under a Block are not booked. Limiters of one key with a Block, such as those of other plans, share it.
type Block struct {
	// Refusals is how many begin a block: 1 to 100. Zero is 5.
	Refusals int
	// Window is the time within which they count, up to a day. Zero is a minute.
	Window time.Duration
	// For is how long the block lasts, up to 30 days. Only the zero Block may leave it out, and is none.
	For time.Duration
}

const (
	defaultRefusals = 5
	defaultWindow   = time.Minute
	longestWindow   = 24 * time.Hour
	longestBlock    = 30 * 24 * time.Hour
)

// driver returns the block in the form of stores.
func (b Block) driver() (driver.Block, error) {
	if b == (Block{}) {
		return driver.Block{}, nil
	}
	b.Refusals = cmp.Or(b.Refusals, defaultRefusals)
	b.Window = cmp.Or(b.Window, defaultWindow)
	switch {
	case b.Refusals < 1 || b.Refusals > driver.MaxRefusals:
		return driver.Block{}, fmt.Errorf("%w: a block after %d refusals: it takes 1 to %d", ErrInvalidLimit, b.Refusals, driver.MaxRefusals)
	case b.Window < time.Microsecond || b.Window > longestWindow || b.Window%time.Microsecond != 0:
		return driver.Block{}, fmt.Errorf("%w: a block after refusals within %v: whole microseconds, up to %v", ErrInvalidLimit, b.Window, longestWindow)
	case b.For < time.Microsecond || b.For > longestBlock || b.For%time.Microsecond != 0:
		return driver.Block{}, fmt.Errorf("%w: a block for %v: whole microseconds, up to %v", ErrInvalidLimit, b.For, longestBlock)
	}
	return driver.Block{Refusals: int64(b.Refusals), Window: b.Window.Microseconds(), Length: b.For.Microseconds()}, nil
}
