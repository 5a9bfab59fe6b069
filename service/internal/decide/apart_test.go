package decide

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A farStore is a store whose subjects all live in different places, a round trip away, as on a cluster.
type farStore struct{ *memstore.Store }

const roundTrip = time.Millisecond

func (s farStore) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	time.Sleep(roundTrip / 2)
	defer time.Sleep(roundTrip / 2)
	return s.Store.Decide(ctx, req)
}

func (farStore) DecideAll(context.Context, []driver.Request) ([]driver.Answer, error) {
	return nil, driver.ErrApart
}

func (s farStore) Settle(ctx context.Context, set driver.Settlement) error {
	time.Sleep(roundTrip / 2)
	defer time.Sleep(roundTrip / 2)
	return s.Store.Settle(ctx, set)
}

// nearStore decides several subjects of one algorithm in one step, a round trip away.
type nearStore struct{ farStore }

func (s nearStore) DecideAll(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	time.Sleep(roundTrip / 2)
	defer time.Sleep(roundTrip / 2)
	return s.Store.DecideAll(ctx, reqs)
}

// inSteps runs a test where the store needs several steps: subjects in different places, and subjects of different
// algorithms. Each store is made in a bubble of its own.
func inSteps(t *testing.T, test func(t *testing.T, d *Decider)) {
	for name, c := range map[string]struct {
		near bool
		text string
	}{
		"different places":     {false, "domain: d\ndescriptors: [{key: a, limits: [1/1h]}, {key: b, limits: [1/1h]}]\n"},
		"different algorithms": {true, "domain: d\ndescriptors: [{key: a, limits: [1/1h]}, {key: b, limits: [1/1h], algorithm: gcra}]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := parse(t, c.text)
				far := farStore{memstore.New(&memstore.Options{Now: time.Now})}
				var store driver.Store = far
				if c.near {
					store = nearStore{far}
				}
				d := newDecider(t, cfg, store)
				test(t, d)
			})
		})
	}
}

// Two requests want the same two units at once, and name them in either order: one gets both. The other one begins up
// to three round trips later, so that the requests meet at every step.
func TestTwoRequestsInSeveralStepsDoNotRefuseEachOther(t *testing.T) {
	for late := time.Duration(0); late <= 3*roundTrip; late += roundTrip / 4 {
		inSteps(t, func(t *testing.T, d *Decider) {
			requests := [2][]Part{{part("a", 1), part("b", 1)}, {part("b", 1), part("a", 1)}}
			var answers [2]string
			var callers sync.WaitGroup
			for i := range answers {
				callers.Go(func() {
					time.Sleep(time.Duration(i) * late)
					answers[i] = ask(t, d, requests[i]...)
				})
			}
			callers.Wait()
			if strings.Contains(answers[0], "OVER") == strings.Contains(answers[1], "OVER") {
				t.Errorf("%v later: %q and %q, want one of them admitted", late, answers[0], answers[1])
			}
		})
	}
}

// A request that is refused by one of its subjects does not make others wait for another one.
func TestARequestWithoutRoomChargesNoSubjectInSeveralSteps(t *testing.T) {
	for _, full := range []string{"a", "b"} {
		other := strings.Trim("ab", full)
		inSteps(t, func(t *testing.T, d *Decider) {
			want(t, "first", ask(t, d, part(full, 1)), "ok:0")
			var callers sync.WaitGroup
			defer callers.Wait()
			done := make(chan struct{})
			defer close(done)
			callers.Go(func() {
				for {
					want(t, "refused", ask(t, d, part("a", 1), part("b", 1)), map[string]string{"a": "OVER:0 | ok:1", "b": "ok:1 | OVER:0"}[full])
					select {
					case <-done:
						return
					default:
					}
				}
			})
			for range 50 {
				time.Sleep(roundTrip / 7)
				want(t, "the other subject", ask(t, d, part(other, 0)), "ok:1")
			}
		})
	}
}

// A caller who leaves is charged for nothing, not even for the step that was under way.
func TestACallerThatLeavesIsChargedForNothingInSeveralSteps(t *testing.T) {
	for leaves := roundTrip / 4; leaves < 3*roundTrip; leaves += roundTrip / 4 {
		inSteps(t, func(t *testing.T, d *Decider) {
			ctx, cancel := context.WithTimeout(t.Context(), leaves)
			defer cancel()
			began := time.Now()
			_, err := d.Decide(ctx, Request{Domain: "d", Parts: []Part{part("a", 1), part("b", 1)}})
			if took := time.Since(began); took != leaves || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", took, err)
			}
			time.Sleep(2 * time.Second)
			want(t, "after "+leaves.String(), ask(t, d, part("a", 0), part("b", 0)), "ok:1 | ok:1")
		})
	}
}
