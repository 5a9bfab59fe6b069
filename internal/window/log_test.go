package window_test

import (
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
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
		for range 100_000 {
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

// A ring holds at most twice its entries, and 100 bytes, however many they are, and gives the memory back when they have left.
func TestMemoryFollowsTheEntries(t *testing.T) {
	log := &window.Log{Resolution: 1}
	hour := (time.Hour).Microseconds()
	limits := []driver.Limit{{Units: driver.MaxUnits, Window: hour}}
	const entry = 16
	most := threshold.Log.Entries/2 - 2 // a ring of the full size stays
	check := func(n, times int) {
		t.Helper()
		if bytes := entry * log.Slots(); bytes > times*n*entry+100 {
			t.Fatalf("%d entries hold %d bytes", n, bytes)
		}
	}
	now := start
	for n := 1; n <= most; n++ {
		now++
		log.Charge(now, 1, limits)
		check(n, 2)
	}
	for n := most; n > 10; n /= 3 { // all but about so many have left
		now = start + int64(most-n) + hour
		log.Charge(now, 0, limits)
		check(n, 4)
	}
	now += 2 * hour
	log.Charge(now, 1, limits)
	check(1, 2)
}
