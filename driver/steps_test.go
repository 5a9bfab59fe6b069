package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A placed store decides requests together whose keys begin with the same letter. To looks it may answer that all
// subjects are free, as if others took the units after that.
type placed struct {
	*memstore.Store
	free *memstore.Store // for looks; nil is the store
}

func (s placed) of(req driver.Request) *memstore.Store {
	if s.free != nil && req.Cost == 0 && !req.MaySettle {
		return s.free
	}
	return s.Store
}

func (s placed) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return s.of(req).Decide(ctx, req)
}

func (s placed) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	for _, req := range reqs {
		if req.Key[0] != reqs[0].Key[0] {
			return nil, driver.ErrApart
		}
	}
	of := s.of(reqs[0])
	for _, req := range reqs[1:] {
		if req.Cost > 0 {
			of = s.Store
		}
	}
	return of.DecideAll(ctx, reqs)
}

// Random requests in random steps, over keys in three places: they are admitted if all have room, and charge nothing
// otherwise. Of a refusal only the step that refused has answers.
func TestSeveralStepsAreAllOrNothing(t *testing.T) {
	const units = 6
	policies := make([]*driver.Policy, 2)
	for i, a := range []sash.Algorithm{sash.SlidingLog, sash.FixedWindow} {
		var err error
		if policies[i], err = sash.NewPolicy(&sash.Options{Algorithm: a}, sash.PerDay(units)); err != nil {
			t.Fatal(err)
		}
	}
	admissions, refusals := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		opts := &memstore.Options{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
		store := placed{Store: memstore.New(opts)}
		if seed%2 == 1 {
			store.free = memstore.New(opts)
		}
		used := make(map[string]int64)
		name := func(req driver.Request) string { return fmt.Sprint(req.Policy.Algorithm, req.Key) }
		for range 20 {
			keys := strings.Fields("a1 a2 b1 b2 c1 c2")
			random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			steps := make([][]driver.Request, 1+random.IntN(3))
			fits := true
			for i := range steps {
				policy := policies[random.IntN(2)]
				for range 1 + random.IntN(2) {
					req := driver.Request{Key: keys[0], Cost: random.Int64N(4), Policy: policy}
					keys = keys[1:]
					fits = fits && used[name(req)]+req.Cost <= units
					steps[i] = append(steps[i], req)
				}
			}
			answers, admitted, err := driver.DecideInSteps(t.Context(), store, steps)
			if err != nil || admitted != fits {
				t.Fatalf("seed %d: %v: admitted is %v, %v", seed, steps, admitted, err)
			}
			answered, refused := 0, 0
			for i, reqs := range steps {
				for j, req := range reqs {
					if admitted {
						used[name(req)] += req.Cost
					}
					if a := &answers[i][j]; len(a.Statuses()) > 0 {
						answered++
						if !a.Allowed() {
							refused++
						}
					}
				}
			}
			if admitted {
				admissions++
			} else if refusals++; refused == 0 || answered > 2 {
				t.Errorf("seed %d: %v: %d answers, %d refusals", seed, steps, answered, refused)
			}
			for _, policy := range policies {
				for _, key := range strings.Fields("a1 a2 b1 b2 c1 c2") {
					look := driver.Request{Key: key, Policy: policy}
					answer, err := store.Store.Decide(t.Context(), look)
					if err != nil || answer.Remaining() != units-used[name(look)] {
						t.Fatalf("seed %d: %s has %d left of %d with %d used, %v", seed, key, answer.Remaining(), units, used[name(look)], err)
					}
				}
			}
		}
	}
	if admissions < 500 || refusals < 500 {
		t.Errorf("%d admissions and %d refusals", admissions, refusals)
	}
}

// A store that cannot give back decides one step only.
func TestSeveralStepsNeedAStoreThatSettles(t *testing.T) {
	policy, err := sash.NewPolicy(nil, sash.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	req := func(key string) []driver.Request { return []driver.Request{{Key: key, Cost: 1, Policy: policy}} }
	store := struct{ driver.Store }{memstore.New(nil)}
	if _, admitted, err := driver.DecideInSteps(t.Context(), store, [][]driver.Request{req("a")}); !admitted || err != nil {
		t.Errorf("one step: %v, %v", admitted, err)
	}
	if _, _, err := driver.DecideInSteps(t.Context(), store, [][]driver.Request{req("b"), req("c")}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("two steps: %v", err)
	}
}

// Outlive returns a panic of the store as an error, also when the caller can leave.
func TestAPanicOfAStoreIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := driver.Outlive(ctx, func(context.Context) (int, error) { panic("a bug") }, func(int) {})
	if err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("the error is %v", err)
	}
}
