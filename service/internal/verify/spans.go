package verify

import (
	"time"

	"example.com/sash/internal/judge"
)

// A span is units that were admitted at an instant between two others, on any clock that all spans share: [from, to].
type span struct {
	from, to time.Duration
	units    int64
	region   int
}

// A fullestWindow is the window (ends-window, ends] that certainly holds the most units.
type fullestWindow struct {
	units int64
	by    []int64 // of them in each region
	ends  time.Duration
	over  int // spans at whose end a window certainly held more than the limit
}

// fullest returns the window in which the most units were certainly admitted.
func fullest(spans []span, window time.Duration, regions int, limit int64) (worst fullestWindow) {
	charges := make([]judge.Charge, len(spans))
	for i, s := range spans {
		charges[i] = judge.Charge{From: int64(s.from), To: int64(s.to), Units: s.units}
	}
	full, over := judge.Fullest(charges, int64(window), limit)
	worst = fullestWindow{units: full.Units, by: make([]int64, regions), ends: time.Duration(full.To), over: over}
	for i, s := range spans {
		if charges[i].From > full.From && charges[i].To <= full.To {
			worst.by[s.region] += s.units
		}
	}
	return worst
}
