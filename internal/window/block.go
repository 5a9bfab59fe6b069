package window

import (
	"slices"

	"example.com/sash/driver"
)

// A Block counts the refusals of a subject, and keeps it out for a time when there are too many. The zero value and nil
// have counted none.
type Block struct {
	ends, length int64
	refusals     []int64 // the instants of those that are counted
}

// Left returns the time until the block ends, or 0. After a clock that went back it lasts no longer than its length.
func (b *Block) Left(now int64) int64 {
	if b == nil {
		return 0
	}
	b.ends = min(b.ends, now+b.length)
	return max(0, b.ends-now)
}

// Refuse counts a refusal, and returns the time that a block lasts which begins with it, or 0.
func (b *Block) Refuse(now int64, by *driver.Block) (begins int64) {
	for i := range b.refusals {
		b.refusals[i] = min(b.refusals[i], now)
	}
	b.refusals = slices.DeleteFunc(b.refusals, func(at int64) bool { return at <= now-by.Window })
	b.ends, b.length = 0, by.Length
	if b.refusals = append(b.refusals, now); int64(len(b.refusals)) < by.Refusals {
		return 0
	}
	b.refusals, b.ends = nil, now+by.Length
	return by.Length
}
