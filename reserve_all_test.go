package sash_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestEverySubjectIsSettledByItself(t *testing.T) {
	eachWay(t, func(t *testing.T, store driver.Store) {
		l := newLimiter(t, store, nil, sash.PerHour(10))
		wide := newLimiter(t, store, nil, sash.PerHour(100))
		for name, c := range map[string]struct {
			client, all step  // nil is never settled
			left        int64 // of the client's 10
			leftOfAll   int64 // of 100
		}{
			"neither":           {nil, nil, 7, 60},
			"the first lower":   {settle(1), nil, 9, 60},
			"the second higher": {nil, settle(70), 7, 30},
			"one given back":    {cancel, nil, 10, 60},
			"the other":         {nil, cancel, 7, 100},
			"both":              {cancel, cancel, 10, 100},
		} {
			client, all := sash.Subject{Key: name, Cost: 3}, sash.Subject{Key: name + ", all", Cost: 40, Limits: wide.Limits()}
			res, reserved, err := l.ReserveAll(t.Context(), client, all)
			if err != nil || !res.Allowed || reserved[0].Result().Remaining != 7 || reserved[1].Result().Remaining != 60 {
				t.Fatalf("%+v, %v: each subject has its own answer, of 10 and of 100", res, err)
			}
			for i, step := range []step{c.client, c.all} {
				for range 2 { // once, however often
					if step == nil {
						continue
					}
					if err := step(t.Context(), reserved[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if one, both := remaining(t, l, client.Key), remaining(t, wide, all.Key); one != c.left || both != c.leftOfAll {
				t.Errorf("%s: %d of 10 and %d of 100 are left, want %d and %d", name, one, both, c.left, c.leftOfAll)
			}
		}
	})
}

func TestARefusalBesideReservationsIsNotFirm(t *testing.T) {
	store := memstore.New(nil)
	l := newLimiter(t, store, nil, sash.PerMinute(1))
	policy, err := sash.NewPolicy(nil, sash.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, rs, err := l.ReserveAll(t.Context(), sash.Subject{Key: "a", Cost: 1}, sash.Subject{Key: "b", Cost: 1}); err != nil || rs == nil {
		t.Fatal(rs, err)
	}
	if _, err := l.Allow(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	for key, firm := range map[string]bool{"a": false, "b": false, "c": true} {
		answer, err := store.Decide(t.Context(), driver.Request{Key: key, Cost: 1, Policy: policy})
		if err != nil || answer.Allowed() || answer.Firm != firm {
			t.Errorf("%s: %+v, %v", key, answer, err)
		}
	}
}

// Three settlements take as long as one, and can be repeated together when the store fails.
func TestSettleAllTakesOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(&slowSettler{memstore.New(nil)})
		l := newLimiter(t, store, nil, sash.PerHour(100))
		_, all, err := l.ReserveAll(t.Context(), sash.Subject{Key: "a", Cost: 10}, sash.Subject{Key: "b", Cost: 10}, sash.Subject{Key: "c", Cost: 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := sash.SettleAll(t.Context(), all, 1, 2); !errors.Is(err, sash.ErrInvalidCost) {
			t.Errorf("2 numbers for 3 reservations: %v", err)
		}
		store.Fail(errors.New("connection refused"))
		if err := sash.SettleAll(t.Context(), all, 1, 2, 30); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("the store is down: %v", err)
		}
		store.Fail(nil)
		began := time.Now()
		if err := sash.SettleAll(t.Context(), all, 1, 2, 30); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 20*time.Millisecond {
			t.Errorf("three settlements took %v, one takes 20ms", took)
		}
		for key, used := range map[string]int64{"a": 1, "b": 2, "c": 30} {
			if left := remaining(t, l, key); left != 100-used {
				t.Errorf("%s has %d left, want %d", key, left, 100-used)
			}
		}
	})
}

type slowSettler struct{ *memstore.Store }

func (s *slowSettler) Settle(ctx context.Context, set driver.Settlement) error {
	time.Sleep(20 * time.Millisecond)
	return s.Store.Settle(ctx, set)
}
