package judge

import (
	"sync/atomic"
	"time"
)

// A Clock stands still until Advance moves it. It is safe for concurrent use.
type Clock struct {
	now atomic.Int64 // microseconds
}

// NewClock returns a clock at the given time.
func NewClock(t time.Time) *Clock {
	c := new(Clock)
	c.now.Store(t.UnixMicro())
	return c
}

// Now returns the time of the clock, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.now.Load()) }

// Advance moves the clock, back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }
