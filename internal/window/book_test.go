package window_test

import (
	"testing"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

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
