package netbench

import (
	"context"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/redistest"
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
