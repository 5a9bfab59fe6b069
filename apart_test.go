package sash_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// farStore is a store whose subjects all live in different places, a round trip away.
type farStore struct{ apartStore }

const roundTrip = time.Millisecond

func (s farStore) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	time.Sleep(roundTrip / 2)
	defer time.Sleep(roundTrip / 2)
	return s.apartStore.Decide(ctx, req)
}

func (s farStore) Settle(ctx context.Context, set driver.Settlement) error {
	time.Sleep(roundTrip / 2)
	defer time.Sleep(roundTrip / 2)
	return s.apartStore.Settle(ctx, set)
}

func newFarStore() farStore {
	return farStore{apartStore{memstore.New(&memstore.Options{Now: time.Now})}}
}

// Two callers want the same two units at once, and name them in either order: one gets both. The other one begins up to
// three round trips later, so that the calls meet at every step.
func TestTwoCallsOverSubjectsApartDoNotRefuseEachOther(t *testing.T) {
	a, b := sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}
	for _, subjects := range [][2][]sash.Subject{{{a, b}, {b, a}}, {{a, b}, {a, b}}} {
		for late := time.Duration(0); late <= 3*roundTrip; late += roundTrip / 4 {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newFarStore(), nil, sash.PerHour(1))
				var results [2]sash.Result
				var callers sync.WaitGroup
				for i := range results {
					callers.Go(func() {
						time.Sleep(time.Duration(i) * late)
						var err error
						if results[i], err = l.AllowAll(t.Context(), subjects[i]...); err != nil {
							t.Error(err)
						}
					})
				}
				callers.Wait()
				if results[0].Allowed == results[1].Allowed {
					t.Errorf("%v later: both calls got %v, want one of them admitted", late, results[0].Allowed)
				}
			})
		}
	}
}

// A call that is refused by its last subject does not make others wait for its first one.
func TestACallWithoutRoomChargesNoSubjectApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newFarStore(), nil, sash.PerHour(1))
		if res, err := l.Allow(t.Context(), "full"); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		var callers sync.WaitGroup
		defer callers.Wait()
		done := make(chan struct{})
		defer close(done)
		callers.Go(func() {
			for {
				res, err := l.AllowAll(t.Context(), sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "full", Cost: 1})
				if err != nil || res.Allowed {
					t.Errorf("admitted by a full subject: %+v, %v", res, err)
				}
				if by, _ := res.RefusedBy(); by.Key != "full" || res.RetryAfter < 59*time.Minute {
					t.Errorf("refused by %v, retry after %v", by.Key, res.RetryAfter)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		for range 100 {
			time.Sleep(roundTrip / 7)
			if res, err := l.Peek(t.Context(), "a"); err != nil || res.Remaining != 1 {
				t.Errorf("%d of 1 remain: %v", res.Remaining, err)
			}
		}
	})
}
