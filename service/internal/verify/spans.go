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

// fullest returns the most units that were certainly admitted in one window (x-window, x], how many of them in each
// region, and x: those that were admitted after the beginning of the window, however early, and before its end, however
// late. It counts too few rather than too many. Spans that are as long as the window count nowhere. It sorts the spans.
func fullest(spans []span, window time.Duration, regions int) (most int64, by []int64, ends time.Duration) {
	spans = slices.DeleteFunc(spans, func(s span) bool { return s.to-s.from >= window })
	begun := slices.Clone(spans)
	slices.SortFunc(begun, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.to, b.to) })
	var units int64
	in := make([]int64, regions)
	gone := 0
	for i, s := range spans {
		units += s.units
		in[s.region] += s.units
		for ; begun[gone].from <= s.to-window; gone++ { // it has ended before, because it is shorter than the window
			units -= begun[gone].units
			in[begun[gone].region] -= begun[gone].units
		}
		if last := i+1 == len(spans) || spans[i+1].to != s.to; last && units > most {
			most, by, ends = units, slices.Clone(in), s.to
		}
	}
	return most, by, ends
}
