package oracle

import (
	"sync/atomic"
	"time"
)

// A Clock stands still until it is moved. It is safe for concurrent use.
type Clock struct {
	now atomic.Int64 // microseconds
}

// NewClock returns a clock that shows the given time.
func NewClock(t time.Time) *Clock {
	c := new(Clock)
	c.now.Store(t.UnixMicro())
	return c
}

// Now returns what the clock shows, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.now.Load()) }

// Advance moves the clock, back when d is negative.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }
