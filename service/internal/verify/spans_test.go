package verify

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// By brute force: the units of all spans that lie in a window as a whole.
func TestTheFullestWindowHoldsWhatLiesInItAsAWhole(t *testing.T) {
	const window, regions = 12, 3
	in := func(s span, x time.Duration) bool { return s.from > x-window && s.to <= x }
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var spans []span
		for range 1 + random.IntN(20) {
			from := time.Duration(random.Int64N(60))
			spans = append(spans, span{from, from + time.Duration(random.Int64N(window+3)), 1 + random.Int64N(3), random.IntN(regions)})
		}
		var want int64
		for x := range time.Duration(90) {
			var inside int64
			for _, s := range spans {
				if in(s, x) {
					inside += s.units
				}
			}
			want = max(want, inside)
		}
		given := slices.Clone(spans)
		worst := fullest(spans, window, regions, want)
		if worst.units != want || worst.over != 0 || want > 0 && fullest(spans, window, regions, want-1).over == 0 {
			t.Fatalf("seed %d: %+v, want %d units: %v", seed, worst, want, spans)
		}
		if !slices.Equal(spans, given) {
			t.Fatalf("seed %d: the spans are changed, and another window would be judged without some", seed)
		}
		shown := make([]int64, regions)
		for _, s := range spans {
			if in(s, worst.ends) {
				shown[s.region] += s.units
			}
		}
		if worst.units > 0 && !slices.Equal(worst.by, shown) {
			t.Fatalf("seed %d: %+v, want %v in that window: %v", seed, worst, shown, spans)
		}
	}
}

func TestLatenciesAreKnownToAHundredth(t *testing.T) {
	l := make(latencies)
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	for part, want := range map[float64]time.Duration{.5: 500 * time.Millisecond, .99: 990 * time.Millisecond} {
		if got := l.percentile(part); got < want*99/100 || got > want*101/100 {
			t.Errorf("percentile %v is %v, want %v", part, got, want)
		}
	}
	if got := make(latencies).percentile(.5); got != 0 {
		t.Errorf("without calls it is %v", got)
	}
}
