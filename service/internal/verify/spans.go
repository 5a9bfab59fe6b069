package verify

import (
	"cmp"
	"slices"
	"time"
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

// fullest returns the window in which the most units were certainly admitted: those that were admitted after its beginning,
// however early, and before its end, however late. It counts too few rather than too many. Spans that are as long as the
// window count nowhere.
func fullest(spans []span, window time.Duration, regions int, limit int64) (worst fullestWindow) {
	ended := slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.to-s.from >= window })
	begun := slices.Clone(ended)
	slices.SortFunc(begun, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(ended, func(a, b span) int { return cmp.Compare(a.to, b.to) })
	var units int64
	in := make([]int64, regions)
	gone := 0
	for i, s := range ended {
		units += s.units
		in[s.region] += s.units
		for ; begun[gone].from <= s.to-window; gone++ { // it has ended before, because it is shorter than the window
			units -= begun[gone].units
			in[begun[gone].region] -= begun[gone].units
		}
		if units > limit {
			worst.over++
		}
		if last := i+1 == len(ended) || ended[i+1].to != s.to; last && units > worst.units {
			worst.units, worst.by, worst.ends = units, slices.Clone(in), s.to
		}
	}
	return worst
}
