package memstore

import "time"

// A clock tells a shard the time in microseconds since the Unix epoch. Without a clock of the caller's it is
// the wall clock. Reading that takes two readings, of the date and of a clock that never goes back, and the
// second alone is twice as fast. So the date is looked at once a second, and reckoned in between:
//
//	now = ahead + time since start
//
// A date that was set is followed, late by a second at most; one that is steered takes the other clock along.
type clock struct {
	custom func() time.Time // Options.Now, or nil
	start  time.Time
	ahead  int64         // the date less the time since start
	look   time.Duration // the time since start at which to look at the date
}

const (
	lookEvery = time.Second
	// A date that is off by less was not set: this process was held up between the two readings.
	leastStep = int64(20 * time.Millisecond / time.Microsecond)
)

func newClock(custom func() time.Time, start time.Time) clock {
	return clock{custom: custom, start: start, ahead: start.UnixMicro(), look: lookEvery}
}

// now reads the clock. The shard's lock is held, so a reading is earlier than the one before it only when the
// date was set back.
func (c *clock) now() int64 {
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

// follow looks at the date, in microseconds, as it is this long after the start.
func (c *clock) follow(date int64, since time.Duration) {
	c.look = since + lookEvery
	ahead := date - since.Microseconds()
	if step := ahead - c.ahead; step >= leastStep || step <= -leastStep {
		c.ahead = ahead
	}
}
