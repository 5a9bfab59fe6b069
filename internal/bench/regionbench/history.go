package regionbench

import (
	"cmp"
	"slices"
	"time"
)

// A record is what a caller saw of one call. Instants are nanoseconds since the Unix epoch, of the one clock that all
// processes of a machine have.
type record struct {
	Stream  int
	Subject int
	Cost    int64
	Due     int64 // when the call was to be made
	Sent    int64 // when it was made
	Done    int64 // when it was answered
	// At is when the cost was charged or spent, by the clock of the store that did it: that of the machine, too. Zero if
	// the caller does not learn it.
	At      int64
	Outcome outcome
	Leased  bool // the answer came from a lease
}

type outcome uint8

const (
	refused outcome = iota
	admitted
	failed
)

// A span is units that were admitted at an instant between two others.
type span struct {
	from, to int64
	units    int64
}

// byCallers returns the admissions as the callers know them: each was admitted between its call and its answer.
func byCallers(records []record) (spans []span) {
	for _, r := range records {
		if r.Outcome == admitted {
			spans = append(spans, span{r.Sent, r.Done, r.Cost})
		}
	}
	return spans
}

// byStores returns the admissions at the instants that the stores know, and the others between call and answer.
func byStores(records []record) []span {
	records = slices.Clone(records)
	for i := range records {
		if at := records[i].At; at != 0 {
			records[i].Sent, records[i].Done = at, at
		}
	}
	return byCallers(records)
}

// worst returns the most units that were certainly admitted in one window (x-window, x]: those that were admitted after
// its beginning, however early, and before its end, however late. It is exact where the instants are. Admissions that
// took longer than a window count nowhere.
func worst(spans []span, window time.Duration) (most int64) {
	begun := slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.to-s.from >= int64(window) })
	ended := slices.Clone(begun)
	slices.SortFunc(begun, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(ended, func(a, b span) int { return cmp.Compare(a.to, b.to) })
	var units int64
	gone := 0
	for i, s := range ended {
		units += s.units
		for begun[gone].from <= s.to-int64(window) { // it has ended, too: none takes a window
			units -= begun[gone].units
			gone++
		}
		if i+1 == len(ended) || ended[i+1].to != s.to {
			most = max(most, units)
		}
	}
	return most
}

// possible returns how many calls of one unit an exact limiter beside every caller admits, of those that are due at some
// instants, from an instant on.
func possible(due []int64, units int64, window time.Duration, since int64) (count int64) {
	due = slices.Sorted(slices.Values(due))
	var charged []int64 // when
	for _, at := range due {
		if n := len(charged); n >= int(units) && charged[n-int(units)] > at-int64(window) {
			continue
		}
		charged = append(charged, at)
		if at >= since {
			count++
		}
	}
	return count
}

// of returns the records that something holds of.
func of(records []record, holds func(*record) bool) (some []record) {
	for i := range records {
		if holds(&records[i]) {
			some = append(some, records[i])
		}
	}
	return some
}

// units returns the cost of the calls with an outcome.
func units(records []record, o outcome) (sum int64) {
	for i := range records {
		if records[i].Outcome == o {
			sum += records[i].Cost
		}
	}
	return sum
}

// took returns how long the calls took, and late how much later than due they were made, both in ascending order.
func took(records []record) (took, late []time.Duration) {
	for i := range records {
		took = append(took, time.Duration(records[i].Done-records[i].Sent))
		late = append(late, time.Duration(records[i].Sent-records[i].Due))
	}
	slices.Sort(took)
	slices.Sort(late)
	return took, late
}

// percentile returns the duration that a part of them, in ascending order, does not exceed.
func percentile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}
