package window_test

import (
	"runtime"
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

// A log that is full merges its entries, and all count.
func TestALogEndsAtItsLongest(t *testing.T) {
	log := &window.Log{Resolution: 1}
	limits := []driver.Limit{{Units: 1 << 39, Window: (30 * 24 * time.Hour).Microseconds()}}
	now := start
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const charges = 1_000_000
	for range charges {
		now++
		log.Charge(now, 1, limits)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 512<<10 {
		t.Errorf("%d charges hold %d bytes", charges, grown)
	}
	var status [1]driver.Status
	log.Look(now, 0, limits, status[:])
	if used := limits[0].Units - status[0].Remaining; used != charges {
		t.Errorf("%d units are in use, of %d that were charged", used, charges)
	}
}

// What was given back of a log that has merged is not given back once more by a later charge.
func TestAMergedChargeThatWasGivenBack(t *testing.T) {
	log := &window.Log{Resolution: 1}
	limits := []driver.Limit{{Units: 1 << 39, Window: time.Minute.Microseconds()}}
	const charges = 20_000
	for i := range int64(charges) {
		log.Charge(start+i*1000, 1, limits)
	}
	now := start + charges*1000
	var status [1]driver.Status
	used := func() int64 {
		log.Look(now, 0, limits, status[:])
		return limits[0].Units - status[0].Remaining
	}
	log.Settle(now, start, -1, limits)
	if used() != charges-1 {
		t.Errorf("%d are in use after one of %d was settled", used(), charges)
	}
	log.Reward(now, charges, limits)
	log.Charge(now, 1, limits)
	log.Settle(now, start+1000, -1, limits)
	if used() != 1 {
		t.Errorf("%d are in use, want the last charge", used())
	}
}

// What is left counts again when a block ends, and what is used as it leaves.
func TestTheNextUnitOfABlockedSubject(t *testing.T) {
	for name, c := range map[string]struct {
		remaining, left, want int64
	}{
		"units are left":       {2, 10, 10},
		"none is left":         {0, 10, 60},
		"one leaves meanwhile": {0, 90, 90},
	} {
		var answer driver.Answer
		answer.Set(1, 0, []driver.Status{{Remaining: c.remaining, Release: 60, Reset: 60}})
		window.Bar(&answer, c.left)
		if s := answer.Statuses()[0]; s.Remaining != 0 || s.Release != c.want || s.Retry != c.left || s.Reset != max(60, c.left) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
