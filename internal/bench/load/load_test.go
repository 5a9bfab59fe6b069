package load

import (
	"testing"
	"time"
)

func TestHistogramFindsQuantilesWithinItsSteps(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	for _, c := range []struct{ quantile, want float64 }{{0.5, 500}, {0.99, 990}} {
		if got := h.quantile(c.quantile); got < 0.96*c.want || got > 1.04*c.want {
			t.Errorf("quantile %v is %v µs, want about %v", c.quantile, got, c.want)
		}
	}
	var quick histogram
	quick.add(0)
	if got := quick.quantile(0.5); got <= 0 || got > 0.04 {
		t.Errorf("the shortest time is %v µs", got)
	}
}
