package lease

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"example.com/sash/driver"
)

var (
	simSeed  = flag.Uint64("seed", 0, "run this seed of the simulation only")
	simSeeds = flag.Uint64("seeds", seedsByDefault, "how many seeds of the simulation to run")
)

// Processes in three regions decide over a home and a store of their region, with ways that are slow or cut and lose
// requests and answers, stores that restart, and clocks that differ, in virtual time. Every promise is checked over all
// calls.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), *simSeeds
	if testing.Short() {
		last = min(last, 100)
	}
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	var calls, admitted, leased, own atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		const shards = 4
		for shard := range uint64(shards) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := first + shard; seed <= last && !t.Failed(); seed += shards {
					problems, all := simulate(t, seed, &bug{})
					for i := range all {
						calls.Add(1)
						if c := &all[i]; c.err == nil && c.res.Allowed {
							admitted.Add(1)
							switch c.res.Source {
							case driver.FromLease:
								leased.Add(1)
							case driver.FromOwn:
								own.Add(1)
							}
						}
					}
					if len(problems) > 0 {
						t.Errorf("%v\nagain: go test ./lease -run TestSimulation -seed %d", problems[0], seed)
					}
				}
			})
		}
	})
	t.Logf("%d seeds, %d calls, %d admitted, %d of them from leases, %d from own shares",
		last-first+1, calls.Load(), admitted.Load(), leased.Load(), own.Load())
}
