package netbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/load"
)

// A scenario is what is asked.
type scenario struct {
	name  string
	quota quota
	keys  int
	skew  float64 // of a Zipf distribution over the keys; 0 when all are as likely
	full  bool    // the window is full and stays full
}

// manyKeys is so few that most calls find their key: what the first call of a key costs is in redisbench.
const manyKeys = 1000

var (
	uniform = scenario{
		name:  "1,000 keys, all as likely",
		quota: quota{limits: []sash.Limit{sash.PerMinute(10_000)}, cost: 1},
		keys:  manyKeys,
	}
	zipf = scenario{
		name:  "1,000 keys, Zipf 1.1",
		quota: quota{limits: []sash.Limit{sash.PerSecond(100_000)}, cost: 1},
		keys:  manyKeys,
		skew:  1.1,
	}
	// As many units as no contender uses up need a resolution: see sash.MaxEntries.
	hot = scenario{
		name:  "one hot key below its limit",
		quota: quota{limits: []sash.Limit{sash.PerSecond(20_000_000)}, resolution: 10 * time.Millisecond, cost: 1},
		keys:  1,
	}
	refused = scenario{
		name:  "one hot key over its limit",
		quota: quota{limits: []sash.Limit{sash.PerHour(100)}, cost: 1},
		keys:  1,
		full:  true,
	}
	dear = scenario{
		name:  "1,000 keys, cost 100",
		quota: quota{limits: []sash.Limit{sash.PerMinute(100_000)}, cost: 100},
		keys:  manyKeys,
	}
	twoWindows = scenario{
		name:  "1,000 keys, two windows",
		quota: quota{limits: []sash.Limit{sash.PerMinute(10_000), sash.PerHour(100_000)}, cost: 1},
		keys:  manyKeys,
	}
	single = scenario{
		name:  "one key, one goroutine",
		quota: quota{limits: []sash.Limit{sash.Every(100_000, 10*time.Second)}, cost: 1},
		keys:  1,
	}
)

// choose returns keys in the order in which they are asked for.
func (s scenario) choose() []string {
	keys := make([]string, s.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("client:%06d", i)
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same for everybody
	var skewed *rand.Zipf
	if s.skew > 0 {
		skewed = rand.NewZipf(random, s.skew, 1, uint64(s.keys-1))
	}
	chosen := make([]string, load.Picks)
	for i := range chosen {
		if skewed != nil {
			chosen[i] = keys[skewed.Uint64()]
		} else {
			chosen[i] = keys[random.IntN(s.keys)]
		}
	}
	return chosen
}

// fill brings the keys into the state that is measured.
func (s scenario) fill(ctx context.Context, o *opened, chosen []string) error {
	for s.full {
		allowed, err := o.decide(ctx, chosen[0])
		if err != nil || !allowed {
			return err
		}
	}
	return nil
}
