package window_test

import (
	"slices"
	"testing"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

type planned struct{ at, units int64 }

// A clock that goes back moves bookings with it: those who sleep start no earlier than that.
func TestAClockThatGoesBackMovesBookings(t *testing.T) {
	limits := []driver.Limit{{Units: 2, Window: 100}}
	log := &window.Log{Resolution: 1}
	out := make([]driver.Status, 1)
	log.Charge(start, 1, limits)
	log.Charge(start+10, 1, limits)
	for i, want := range []int64{start + 100, start + 110, start + 200} {
		if at, refusals := window.Book(log, start+20, 1000, 1, limits, out); at != want || refusals != 0 {
			t.Fatalf("booking %d is at %d, want %d", i, at-start, want-start)
		}
	}
	log.Look(start+5, 0, limits, out)
	want := []planned{{start, 1}, {start + 5, 1}, {start + 85, 1}, {start + 95, 1}, {start + 185, 1}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
	// Settlements of bookings that have moved take nothing from those that are there now.
	for _, at := range []int64{start + 85, start + 95, start + 100, start + 110, start + 200} {
		log.Settle(start+6, at, -1, limits)
	}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("after the settlements the entries are %v, want %v", got, want)
	}
	log.Settle(start+6, start, -1, limits) // this one was not moved
	if got := entries(log); got[0].units != 0 {
		t.Errorf("the entries are %v, and the first was given back", got)
	}
}

func entries(l *window.Log) (all []planned) {
	for at, units := range l.Entries() {
		all = append(all, planned{at, units})
	}
	return all
}

// Charges of one step share an entry, but none starts earlier for it, and no window ahead loses any.
func TestBookingsDoNotShareEntries(t *testing.T) {
	limits := []driver.Limit{{Units: 10, Window: 10_000}, {Units: 6, Window: 9_500}}
	log := &window.Log{Resolution: 4000}
	out := make([]driver.Status, 2)
	const step = start / 4000 * 4000
	log.Charge(step, 6, limits)
	if at, _ := window.Book(log, step+1, 1e6, 4, limits, out); at != step+9_500 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if at, _ := window.Book(log, step+1, 1e6, 1, limits, out); at != step+10_000 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if at, _ := window.Book(log, step+1, 1e6, 2, limits, out); at != step+19_000 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if refusals := window.Decide(log, step+9_000, 1, limits[:1], false, out); refusals == 0 {
		t.Errorf("11 units of 10 are in the window that ends at %d", 9_500)
	}
	want := []planned{{step, 6}, {step + 9_500, 4}, {step + 10_000, 1}, {step + 19_000, 2}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
}

// At most so many entries lie ahead, and a call that is not booked looks at so many of them.
func TestBookingsAreBounded(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Ahead, threshold.Log.Walk = 5, 3
	limits := []driver.Limit{{Units: 2, Window: 100}}
	log := &window.Log{Resolution: 1}
	out := make([]driver.Status, 1)
	window.Book(log, start, 0, 2, limits, out)
	for i := range 5 {
		window.Book(log, start, 10_000, 2, limits, out)
		if at := start + 100*int64(i+1); log.Until(start) != at {
			t.Fatalf("booking %d: the last starts at %d, want %d", i, log.Until(start), at)
		}
	}
	if _, refusals := window.Book(log, start, 10_000, 2, limits, out); refusals != 1 || out[0].Retry != 600 {
		t.Errorf("the sixth: refusals %b, retry %d", refusals, out[0].Retry)
	}
	if _, refusals := window.Book(log, start+100, 10_000, 2, limits, out); refusals != 0 {
		t.Errorf("once the first has started: refusals %b", refusals)
	}
	many := []driver.Limit{{Units: 1000, Window: 301}}
	if refusals := window.Decide(log, start+100, 1, many, false, out); refusals != 0 || out[0].Remaining == 0 {
		t.Errorf("with three bookings in the window: refusals %b, %+v", refusals, out[0])
	}
	many[0].Window = 401
	if refusals := window.Decide(log, start+100, 1, many, false, out); refusals != 1 || out[0].Remaining != 0 {
		t.Errorf("with four bookings in the window: refusals %b, %+v", refusals, out[0])
	}
}

// Bookings keep their units when full entries before them are merged.
func TestAClockThatGoesBackFillsAnEntryBeforeBookings(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Units = 10
	limits := []driver.Limit{{Units: 9, Window: 100}}
	log := &window.Log{Resolution: 1}
	log.Charge(start, 8, limits)
	log.Charge(start+1, 8, limits)
	window.Book(log, start+1, 1000, 3, limits, make([]driver.Status, 1))
	log.Look(start, 0, limits, make([]driver.Status, 1))
	want := []planned{{start, 10}, {start + 100, 3}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
}
