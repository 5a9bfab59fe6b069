package sash_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
)

// A downStore books until it is down.
type downStore struct {
	*bookStore
	down atomic.Bool
}

func (s *downStore) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	if s.down.Load() {
		return driver.Answer{}, errors.New("down")
	}
	return s.bookStore.Decide(ctx, req)
}

// While the store is down failover answers those who come to wait, by its mode. Those who have a place start at its time.
func TestWaitingWhileFailoverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &downStore{bookStore: newBookStore()}
		guarded, err := failover.New(store, &failover.Options{
			Modes: failover.Modes{Rules: []failover.Rule{
				{MaxCost: 1, Mode: failover.Open}, {MaxCost: 2, Mode: failover.Local}, {MaxCost: 3, Mode: failover.Closed},
			}},
			Local: memstore.New(nil),
		})
		if err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, guarded, nil, sash.Every(4, time.Minute))
		began := time.Now()
		if err := l.WaitN(t.Context(), "k", 4); err != nil {
			t.Fatal(err)
		}
		booked := book(t, l, "k", 4)
		store.down.Store(true)
		for range 3 {
			if err := l.Wait(t.Context(), "k"); err != nil || time.Since(began) != 0 {
				t.Errorf("open: after %v: %v", time.Since(began), err)
			}
		}
		if err := l.WaitN(t.Context(), "k", 3); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("closed: %v", err)
		}
		for i := range 3 {
			if err := l.WaitN(t.Context(), "other", 2); err != nil || time.Since(began) != time.Duration(i/2)*time.Minute {
				t.Errorf("local, call %d of two a minute: after %v: %v", i, time.Since(began), err)
			}
		}
		if err := booked.Wait(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("a place of before: after %v: %v", time.Since(began), err)
		}
		if err := guarded.Close(t.Context()); err != nil {
			t.Log(err)
		}
	})
}
