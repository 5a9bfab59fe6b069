package window_test

import (
	"testing"
	"time"

	"example.com/sash/driver"

	"example.com/sash/internal/window"
)

const start = int64(1_790_000_000_000_000)

// Calls in flight that overlap, each given back, while one is held: however many there were, the one that
// is held counts, and can be given back.
func TestWhatIsHeldCountsHoweverManyWereGivenBack(t *testing.T) {
	for _, resolution := range []int64{1, 1000} {
		log := &window.Log{Resolution: resolution}
		hold := (24 * time.Hour).Microseconds()
		limits := []driver.Limit{{Units: 3, Window: hold}}
		now := start
		log.Charge(now, 1, limits)
		previous := int64(0)
		for range driver.MaxEntries + 5000 {
			now += 2 * resolution
			log.Charge(now, 1, limits)
			if previous != 0 {
				log.Settle(now, previous, -1, limits)
			}
			previous = now
		}
		used := func() int64 {
			var status [1]driver.Status
			log.Look(now, 0, limits, status[:])
			return limits[0].Units - status[0].Remaining
		}
		if used() != 2 {
			t.Errorf("%d are in flight, want the one that is held and the last", used())
		}
		log.Settle(now, start, -1, limits)
		if used() != 1 {
			t.Errorf("%d are in flight after the held one ended, want the last", used())
		}
		log.Settle(now, start-1, -1, limits) // nothing was charged then
		log.Settle(now, previous, -1, limits)
		if used() != 0 {
			t.Errorf("%d are in flight after all ended", used())
		}
	}
}
