package apart_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/apart"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// A placed store decides requests together whose keys begin with the same letter. To looks it may answer that all
// subjects are free, as if others took the units after that.
type placed struct {
	*memstore.Store
	free *memstore.Store // for looks; nil is the store
}

func (s placed) of(op *driver.Op) *memstore.Store {
	if s.free != nil && op.Kind == driver.Charge && op.Cost == 0 && !op.MaySettle {
		return s.free
	}
	return s.Store
}

func (s placed) Do(ctx context.Context, b *driver.Batch) error {
	of := s.of(&b.Ops[0])
	for i := range b.Ops[1:] {
		op := &b.Ops[1+i]
		if op.Key[0] != b.Ops[0].Key[0] {
			return driver.ErrApart
		}
		if op.Cost > 0 {
			of = s.Store
		}
	}
	return of.Do(ctx, b)
}

// inSteps decides requests in steps, and returns their answers.
func inSteps(ctx context.Context, store driver.Store, steps [][]driver.Request) (answers [][]driver.Answer, admitted bool, err error) {
	asked := make([][]driver.Op, len(steps))
	for i, reqs := range steps {
		for _, req := range reqs {
			asked[i] = append(asked[i], driver.Op{Settlement: driver.Settlement{Request: req}})
		}
	}
	admitted, err = apart.Decide(ctx, store, asked...)
	for _, ops := range asked {
		var all []driver.Answer
		for i := range ops {
			all = append(all, ops[i].Answer)
		}
		answers = append(answers, all)
	}
	return answers, admitted, err
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
			answers, admitted, err := inSteps(t.Context(), store, steps)
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
					answer, err := driver.Decide(t.Context(), store.Store, look)
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

// A settling store notifies of settlements.
type settling struct {
	placed
	settled func()
}

func (s *settling) Do(ctx context.Context, b *driver.Batch) error {
	err := s.placed.Do(ctx, b)
	if b.Ops[0].Kind == driver.Settle {
		s.settled()
	}
	return err
}

// A dying store answers some steps, and then nothing.
type dying struct {
	placed
	left int // charges
}

func (s *dying) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind != driver.Charge || s.left == 0 {
		return sash.ErrUnavailable
	}
	if b.Ops[0].Cost > 0 {
		s.left--
	}
	return s.placed.Do(ctx, b)
}

// A store that ends between steps is one error, and not one for each charge that stays.
func TestAStoreThatEndsBetweenStepsIsOneError(t *testing.T) {
	policy := newPolicy(t, nil, sash.PerDay(1))
	var steps [][]driver.Request
	for i := range 200 {
		steps = append(steps, []driver.Request{{Key: fmt.Sprintf("k%03d", i), Cost: 1, Policy: policy}})
	}
	store := &dying{placed{Store: memstore.New(nil)}, 150}
	_, admitted, err := inSteps(t.Context(), store, steps)
	if admitted || !errors.Is(err, sash.ErrUnavailable) || len(err.Error()) > 200 {
		t.Errorf("%v, %d bytes of %T", admitted, len(fmt.Sprint(err)), err)
	}
}

// A store that cannot give back decides one step only.
func TestSeveralStepsNeedAStoreThatSettles(t *testing.T) {
	policy := newPolicy(t, nil, sash.PerDay(1))
	req := func(key string) []driver.Request { return []driver.Request{{Key: key, Cost: 1, Policy: policy}} }
	store := drivertest.Plain(memstore.New(nil))
	if _, admitted, err := inSteps(t.Context(), store, [][]driver.Request{req("a")}); !admitted || err != nil {
		t.Errorf("one step: %v, %v", admitted, err)
	}
	if _, _, err := inSteps(t.Context(), store, [][]driver.Request{req("b"), req("c")}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("two steps: %v", err)
	}
}

// Outlive returns a panic of the store as an error, whatever the caller's context. After the caller has left it ends nothing.
func TestAPanicOfAStoreIsAnError(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ends, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, ctx := range map[string]context.Context{
		"cannot end": context.Background(), "can end": ends, "has ended": ended,
	} {
		_, err := apart.Outlive(ctx, nil, func(context.Context) (int, error) { panic("a bug") }, func(int) {})
		if err == nil || !strings.Contains(err.Error(), "a bug") {
			t.Errorf("a context that %s: the error is %v", name, err)
		}
	}
	synctest.Test(t, func(t *testing.T) { // it returns when every goroutine has ended
		for _, late := range []func() int{func() int { panic("a bug") }, func() int { return 1 }} {
			ctx, leave := context.WithCancel(t.Context())
			_, err := apart.Outlive(ctx, nil, func(context.Context) (int, error) { leave(); synctest.Wait(); return late(), nil },
				func(int) { panic("another bug") })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller has left: %v", err)
			}
		}
	})
}

func newPolicy(t testing.TB, opts *sash.Options, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	v, err := sash.NewPolicy(opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Another call takes the room of "b" after the look. The call gives "a" back and begins again, three times in all.
func TestACallBeginsAgainIfAnotherTookTheRoom(t *testing.T) {
	policy := newPolicy(t, nil, sash.PerDay(1))
	req := func(key string) driver.Request { return driver.Request{Key: key, Cost: 1, Policy: policy} }
	for returned, want := range map[int]bool{1: true, 2: true, 3: false} { // when the other call gives "b" back
		store := &settling{placed: placed{Store: memstore.New(nil), free: memstore.New(nil)}}
		if _, err := driver.Decide(t.Context(), store.Store, req("b")); err != nil {
			t.Fatal(err)
		}
		tries := 0
		store.settled = func() {
			if tries++; tries == returned {
				if err := drivertest.Of(store).Forget(t.Context(), "b", policy); err != nil {
					t.Error(err)
				}
			}
		}
		_, admitted, err := inSteps(t.Context(), store, [][]driver.Request{{req("a")}, {req("b")}})
		if err != nil || admitted != want {
			t.Errorf("the room is back after %d tries: admitted is %v, %v", returned, admitted, err)
		}
	}
}

// Where refused calls are charged too, a refusal is charged to the step that refuses only.
func TestARefusalIsChargedToTheStepThatRefuses(t *testing.T) {
	policy := newPolicy(t, &sash.Options{CountRefused: true}, sash.PerDay(5))
	req := func(key string, cost int64) driver.Request {
		return driver.Request{Key: key, Cost: cost, Policy: policy}
	}
	store := memstore.New(nil)
	if _, err := driver.Decide(t.Context(), store, req("b", 4)); err != nil {
		t.Fatal(err)
	}
	_, admitted, err := inSteps(t.Context(), placed{Store: store}, [][]driver.Request{{req("a", 2)}, {req("b", 2)}})
	if err != nil || admitted {
		t.Fatal(admitted, err)
	}
	for key, left := range map[string]int64{"a": 5, "b": 0} {
		if answer, err := driver.Decide(t.Context(), store, req(key, 0)); err != nil || answer.Remaining() != left {
			t.Errorf("%s has %d left, want %d, %v", key, answer.Remaining(), left, err)
		}
	}
}
