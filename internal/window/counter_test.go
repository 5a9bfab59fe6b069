package window

import (
	"testing"

	"example.com/sash/driver"
)

// Refusals that are charged must not wrap the count, after which there would be room again.
func TestTheCountOfAFixedWindowDoesNotWrap(t *testing.T) {
	limits := []driver.Limit{{Units: 5, Window: 60_000_000}}
	f := &Counter{counters: []counter{{limits[0], count{end: 60_000_000, current: mostCount - 1}}}}
	for range 4 {
		f.Charge(1, 1<<61, limits)
	}
	var out [1]driver.Status
	if f.Look(1, 1, limits, out[:]) == 0 {
		t.Errorf("there is room: %+v", out[0])
	}
}

// Slots returns how many entries the ring has room for.
func (l *Log) Slots() int { return len(l.ring) }
