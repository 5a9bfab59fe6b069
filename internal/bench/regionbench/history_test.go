package regionbench

import (
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
)

// Where instants are exact the judge is the one of every other test: no window has more than worst, and one has that.
func TestWorstIsTheLeastLimitThatTheHistoryKeeps(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		window := time.Duration(1+random.IntN(20)) * time.Microsecond
		var spans []span
		var admissions []judge.Call
		for range 1 + random.IntN(30) {
			at, cost := 1000*random.Int64N(60), 1+random.Int64N(4)
			spans = append(spans, span{at, at, cost})
			admissions = append(admissions, judge.Call{At: time.Unix(0, at), Cost: cost})
		}
		most := worst(spans, window)
		if err := judge.CheckHistory([]sash.Limit{sash.Every(most, window)}, admissions); err != nil {
			t.Fatalf("seed %d: worst %d: %v", seed, most, err)
		}
		if most > 1 && judge.CheckHistory([]sash.Limit{sash.Every(most-1, window)}, admissions) == nil {
			t.Fatalf("seed %d: no window has %d units", seed, most)
		}
	}
}

// By brute force: the units of all spans that lie in a window as a whole.
func TestWorstCountsWhatLiesInAWindowAsAWhole(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		const window = 12
		var spans []span
		for range 1 + random.IntN(20) {
			from := random.Int64N(60)
			spans = append(spans, span{from, from + random.Int64N(window+3), 1 + random.Int64N(3)})
		}
		var want int64
		for x := int64(0); x < 90; x++ {
			var inside int64
			for _, s := range spans {
				if s.from > x-window && s.to <= x {
					inside += s.units
				}
			}
			want = max(want, inside)
		}
		if got := worst(spans, window); got != want {
			t.Fatalf("seed %d: worst %d, want %d: %v", seed, got, want, spans)
		}
	}
}

func TestPossibleIsWhatAnExactLimiterAdmits(t *testing.T) {
	due := []int64{30, 0, 1, 2, 10, 11, 12, 13}
	for _, c := range []struct {
		name          string
		units, window int64
		since         int64
		want          int64
	}{
		{"room for all", 8, 10, 0, 8},
		{"a unit is free a window later, not before", 3, 10, 0, 7},
		{"what came before is not counted, and charged", 3, 10, 11, 3},
		{"one at a time", 1, 10, 0, 3},
	} {
		if got := possible(due, c.units, time.Duration(c.window), c.since); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
