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

// A CoolDown is the time for which a key is left alone.
type CoolDown struct {
	end, length int64
	guessed     bool
}

// Begin begins a cool-down at now, unless the state has one that ends as late.
func (s *CoolDown) Begin(now int64, c driver.CoolDown) {
	if s.At(now); now+c.Length > s.end {
		s.end, s.length, s.guessed = now+c.Length, c.Length, c.Guessed
	}
}

// At returns the cool-down as it is at now. One that began later than now, by a clock that went back, begins
// now.
func (s *CoolDown) At(now int64) driver.CoolDown {
	if s.length == 0 || now >= s.Expires() {
		return driver.CoolDown{}
	}
	s.end = min(s.end, now+s.length)
	return driver.CoolDown{Length: s.length, Left: s.end - now, Guessed: s.guessed}
}

// Expires returns the instant from which nobody needs to know of it.
func (s *CoolDown) Expires() int64 { return s.end + driver.CoolDown{Length: s.length}.Keep() }
