package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
)

// A meeting store counts what walks meet.
type meeting struct {
	*memstore.Store
	met   map[string]int
	until map[string]int64 // the latest booking of each key
}

func (c *meeting) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	answer, err := c.Store.Decide(ctx, req)
	now := answer.At - answer.Delay
	ahead := c.until[req.Key] > now
	switch {
	case answer.Delay > 0 && ahead:
		c.met["behind others"]++
	case answer.Delay > 0:
		c.met["ahead"]++
	case !ahead || req.Cost == 0:
	case req.Within > 0:
		c.met["refused behind others"]++
	case answer.Allowed():
		c.met["before bookings"]++
	default:
		c.met["refused before bookings"]++
	}
	if answer.Delay > 0 {
		c.until[req.Key] = answer.At
	}
	return answer, err
}

// Bookings agree with the definition, where few of them are many.
func TestMemstoreBooks(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Ahead, threshold.Log.Walk = 6, 3
	met := make(map[string]int)
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		for seed := range uint64(400) {
			clock := judge.NewClock(start)
			rng := rand.New(rand.NewPCG(seed, 2))
			err := randomCalls(setup{
				store: &meeting{memstore.New(&memstore.Options{Now: clock.Now}), met, make(map[string]int64)}, clock: clock,
				algorithm: a, steps: 80, choose: rng.IntN, prefix: fmt.Sprint(seed, ":"),
			})
			if err != nil {
				t.Fatalf("%v, seed %d: %v", a, seed, err)
			}
		}
	}
	for _, event := range []string{"ahead", "behind others", "refused behind others", "before bookings", "refused before bookings"} {
		if met[event] < 200 {
			t.Errorf("%d calls were %s", met[event], event)
		}
	}
	t.Log(met)
}
