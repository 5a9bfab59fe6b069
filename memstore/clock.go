package memstore

import (
	"time"

	"example.com/sash/internal/threshold"
)

// A clock returns a shard's time in microseconds since the Unix epoch: that of Options.Now, or the wall clock. time.Now
// reads both the wall clock and the monotonic clock, which takes twice as long as the monotonic clock alone. So the
// clock reads the wall clock once a second, and computes the time in between:
//
//	now = ahead + time since start
//
// If the wall clock is set, the clock follows within a second. If it is slewed, the monotonic clock is slewed too. If a
// clock trembles, going back by a millisecond or less, the clock stands still until it has caught up: every bound holds.
//
// Until it has passed the instant at which a subject was removed, the clock returns the next one. So a charge of the
// subject from before is earlier than every charge after it, however many are removed while the clock stands still.
type clock struct {
	custom func() time.Time // Options.Now, or nil
	start  time.Time
	ahead  int64         // the wall clock minus the time since start
	look   time.Duration // when to read the wall clock next, since start
	last   int64         // the last reading
	closed int64         // when a subject was last removed; 0 once the clock has moved on
	stood  int64         // what the clock would show without removals, when closed was set first
}

const (
	lookEvery = time.Second
	// If the difference is smaller, the clock was not set: the process was delayed between the two readings.
	leastStep = int64(20 * time.Millisecond / time.Microsecond)
)

func newClock(custom func() time.Time, start time.Time) clock {
	return clock{custom: custom, start: start, ahead: start.UnixMicro(), look: lookEvery}
}

// now reads the clock. The caller holds the shard's lock, so a reading is earlier than the previous one only if the clock
// was set back by more than it trembles.
func (c *clock) now() int64 {
	now := c.read()
	if now < c.last && c.last-now <= threshold.Log.Step {
		now = c.last
	}
	c.last = now
	if c.closed != 0 {
		if c.stood <= now && now <= c.closed {
			return c.closed + 1
		}
		c.closed = 0
	}
	return now
}

// close makes every later reading later than now, the last one, at which a subject is removed. A clock that is set back
// is followed nevertheless.
func (c *clock) close(now int64) {
	if c.closed == 0 {
		c.stood = now
	}
	c.closed = now
}

func (c *clock) read() int64 {
	if c.custom != nil {
		return c.custom().UnixMicro()
	}
	since := time.Since(c.start)
	if since >= c.look {
		date := time.Now()
		since = date.Sub(c.start)
		c.follow(date.UnixMicro(), since)
	}
	return c.ahead + since.Microseconds()
}

// follow reads the wall clock, in microseconds, at a time since the start.
func (c *clock) follow(date int64, since time.Duration) {
	c.look = since + lookEvery
	ahead := date - since.Microseconds()
	if step := ahead - c.ahead; step >= leastStep || step <= -leastStep {
		c.ahead = ahead
	}
}
