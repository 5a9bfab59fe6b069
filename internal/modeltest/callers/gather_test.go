package callers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/coalesce"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/redisstore"
)

// A countedTrips store counts the requests that it decides together.
type countedTrips struct {
	*redisstore.Store
	gathered atomic.Int64
}

func (c *countedTrips) DecideMany(ctx context.Context, reqs []driver.Request) ([]driver.Answer, []error) {
	c.gathered.Add(int64(len(reqs)))
	return c.Store.DecideMany(ctx, reqs)
}

// Calls of many callers on several keys through coalesce admit exactly what fits, and refuse nothing that does, as one by
// one.
func TestGatheredCallersAreAdmittedExactly(t *testing.T) {
	counting := &countedTrips{Store: startLive(t).store}
	store := coalesce.New(counting)
	limits := []sash.Limit{sash.Every(20, time.Second), sash.Every(33, time.Hour)}
	l := newLimiter(t, store, nil, limits...)
	const keys, callers, calls = 12, 48, 30
	type outcome struct {
		judge.Call
		key     int
		allowed bool
	}
	outcomes := make([][]outcome, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 9))
			for range calls {
				key, cost := rng.IntN(keys), 1+rng.Int64N(3)
				res, err := l.AllowN(context.Background(), fmt.Sprint("k", key), cost)
				if err != nil {
					t.Error(err)
					return
				}
				outcomes[c] = append(outcomes[c], outcome{judge.Call{At: res.At, Cost: cost}, key, res.Allowed})
			}
		})
	}
	all.Wait()
	for key := range keys {
		var admitted, refused []judge.Call
		for _, o := range slices.Concat(outcomes...) {
			switch {
			case o.key != key:
			case o.allowed:
				admitted = append(admitted, o.Call)
			default:
				refused = append(refused, o.Call)
			}
		}
		if err := judge.CheckHistory(limits, admitted); err != nil {
			t.Errorf("key %d: %v", key, err)
		}
		if err := judge.CheckRefusals(limits, admitted, refused); err != nil {
			t.Errorf("key %d: %v", key, err)
		}
	}
	if counting.gathered.Load() == 0 {
		t.Error("no calls went together; the test shows nothing")
	}
}
