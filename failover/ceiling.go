package failover

import (
	"sync"
	"time"
)

// stepsOfSecond are the steps in which a ceiling counts. One more is kept, so that every second lies within them.
const stepsOfSecond = 20

// A ceiling bounds the units that mode Open lets through in any second. The zero ceiling lets everything through.
type ceiling struct {
	most int64
	born time.Time

	mu    sync.Mutex
	units [stepsOfSecond + 1]int64 // guarded by mu: of the latest steps, each at its number modulo their count
	last  int64                    // guarded by mu: the number of the latest step
	sum   int64                    // guarded by mu: of units
}

// admits reports whether there is room for a cost now, and counts it.
func (c *ceiling) admits(cost int64) bool {
	if c.most == 0 || cost == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := int64(time.Since(c.born) / (time.Second / stepsOfSecond))
	for next := max(c.last+1, now-stepsOfSecond); next <= now; next++ {
		at := &c.units[next%int64(len(c.units))]
		c.sum -= *at
		*at = 0
	}
	c.last = max(c.last, now)
	if cost > c.most-c.sum {
		return false
	}
	c.sum += cost
	c.units[c.last%int64(len(c.units))] += cost
	return true
}
