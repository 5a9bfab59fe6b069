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

// reserveAll reserves 3 of 10 for a client and 40 of 100 of what all clients share.
func reserveAll(t *testing.T, l *sash.Limiter) (sash.Result, []*sash.Reservation) {
	t.Helper()
	res, reserved, err := l.ReserveAll(t.Context(),
		sash.Subject{Key: "client", Cost: 3},
		sash.Subject{Key: "all", Cost: 40, Limits: []sash.Limit{sash.PerHour(100)}})
	if err != nil {
		t.Fatal(err)
	}
	return res, reserved
}

func TestEverySubjectIsSettledByItself(t *testing.T) {
	for where, store := range map[string]func() driver.Store{
		"in one step": func() driver.Store { return memstore.New(nil) },
		"one by one":  func() driver.Store { return apartStore{memstore.New(nil)} },
	} {
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
			t.Run(where+"/"+name, func(t *testing.T) {
				s := store()
				l := newLimiter(t, s, nil, sash.PerHour(10))
				res, reserved := reserveAll(t, l)
				if !res.Allowed || len(reserved) != 2 || !reserved[0].Allowed() || !reserved[1].Allowed() {
					t.Fatalf("%+v, %d reservations", res, len(reserved))
				}
				if one, all := reserved[0].Result().Remaining, reserved[1].Result().Remaining; one != 7 || all != 60 {
					t.Errorf("each subject's own answer: %d of 10 and %d of 100 left", one, all)
				}
				for i, step := range []step{c.client, c.all} {
					if step == nil {
						continue
					}
					for range 2 { // once, however often
						if err := step(t.Context(), reserved[i]); err != nil {
							t.Fatal(err)
						}
					}
				}
				if left := remaining(t, l, "client"); left != c.left {
					t.Errorf("the client has %d of 10 left, want %d", left, c.left)
				}
				if left := remaining(t, newLimiter(t, s, nil, sash.PerHour(100)), "all"); left != c.leftOfAll {
					t.Errorf("%d of 100 left, want %d", left, c.leftOfAll)
				}
			})
		}
	}
}

func TestReserveAllRefusesWhatItCannotDo(t *testing.T) {
	subject := sash.Subject{Key: "k", Cost: 1}
	counting := newLimiter(t, memstore.New(nil), &sash.Options{CountRefused: true}, sash.PerHour(10))
	settles := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
	for name, c := range map[string]struct {
		limiter  *sash.Limiter
		subjects []sash.Subject
		want     error
	}{
		"a store that cannot settle":  {newLimiter(t, panicStore{}, nil, sash.PerHour(10)), []sash.Subject{subject}, sash.ErrUnsupported},
		"the same for nobody":         {newLimiter(t, panicStore{}, nil, sash.PerHour(10)), nil, sash.ErrUnsupported},
		"refused calls that count":    {counting, []sash.Subject{subject}, sash.ErrUnsupported},
		"nobody":                      {settles, nil, sash.ErrInvalidLimit},
		"an estimate above the limit": {settles, []sash.Subject{{Key: "k", Cost: 11}}, sash.ErrCostAboveLimit},
		"one subject twice":           {settles, []sash.Subject{subject, subject}, sash.ErrInvalidKey},
		"a store that is down":        {newLimiter(t, downSettler{failingStore{errLost}}, nil, sash.PerHour(10)), []sash.Subject{subject}, sash.ErrUnavailable},
	} {
		if _, reserved, err := c.limiter.ReserveAll(t.Context(), c.subjects...); !errors.Is(err, c.want) || reserved != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// downSettler would settle, if it were not down.
type downSettler struct{ failingStore }

func (downSettler) Settle(context.Context, driver.Settlement) error { return errLost }

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
