package window_test

import (
	"testing"
	"time"

	"example.com/sash/internal/window"
)

// A log ends at MaxEntries, whatever is asked of it: the oldest entries go, and what is left is counted.
func TestALogEndsAtItsLongest(t *testing.T) {
	log := &window.Log{Resolution: 1}
	limits := []window.Limit{{Units: 1 << 39, Span: window.Span{Window: (30 * 24 * time.Hour).Microseconds()}}}
	now := int64(1_790_000_000_000_000)
	for range window.MaxEntries + 50_000 {
		now++
		log.Charge(now, 1, limits)
	}
	var status [1]window.Status
	log.Look(now, 0, limits, status[:])
	if held := limits[0].Units - status[0].Remaining; held != window.MaxEntries {
		t.Errorf("%d entries are held, not %d", held, window.MaxEntries)
	}
}
