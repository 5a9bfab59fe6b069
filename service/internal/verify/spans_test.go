package verify

import (
	"testing"
	"time"
)

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
