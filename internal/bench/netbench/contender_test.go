package netbench

import (
	"context"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/server"
)

// Figures compare only if every contender does the same work: a limit of 50 an hour admits 50.
func TestEveryContenderEnforcesTheLimit(t *testing.T) {
	s, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	r := &run{server: s}
	for _, c := range contenders().limiters() {
		t.Run(c.name, func(t *testing.T) {
			for _, q := range []struct {
				name  string
				quota quota
				want  int
			}{
				{"one window", costing(1, sash.Every(50, time.Hour)), 50},
				{"two windows", costing(1, sash.Every(50, time.Hour), sash.Every(30, 2*time.Hour)), 30},
				{"cost 20", costing(20, sash.Every(50, time.Hour)), 2},
			} {
				o, err := r.open(c, q.quota)
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
