package netbench

import (
	"context"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// Figures only compare when every contender does the same work: within an hour, limit 50 lets 50 in.
func TestEveryContenderEnforcesTheLimit(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range contenders().all() {
		t.Run(c.name, func(t *testing.T) {
			for _, q := range []struct {
				name  string
				quota quota
				want  int
			}{
				{"one window", quota{limits: []sash.Limit{sash.Every(50, time.Hour)}, cost: 1}, 50},
				{"two windows", quota{limits: []sash.Limit{sash.Every(50, time.Hour), sash.Every(30, 2*time.Hour)}, cost: 1}, 30},
				{"cost 20", quota{limits: []sash.Limit{sash.Every(50, time.Hour)}, cost: 20}, 2},
			} {
				if err := flush(server); err != nil {
					t.Fatal(err)
				}
				o, err := c.open(server.Addr(), q.quota)
				if err != nil {
					t.Fatal(err)
				}
				defer o.close()
				admitted := 0
				for range 80 {
					allowed, err := o.decide(context.Background(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if allowed {
						admitted++
					}
				}
				if admitted != q.want {
					t.Errorf("%s: admitted %d of 80, want %d", q.name, admitted, q.want)
				}
			}
		})
	}
}

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
