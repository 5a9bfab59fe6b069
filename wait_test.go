package sash_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// No call is booked more than a day ahead. A caller with more time than that waits until it can be.
func TestATurnThatIsDaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(nil), nil, sash.Every(1, 20*time.Hour))
		start := time.Now()
		for range 2 {
			if _, err := l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: sash.MaxAhead}); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithDeadline(t.Context(), start.Add(40*time.Hour))
		defer cancel()
		if err := l.Wait(short, "k"); !errors.Is(err, sash.ErrLimited) || time.Since(start) != 0 {
			t.Errorf("with a deadline of 40 h, %v after %v", err, time.Since(start))
		}
		long, cancel := context.WithDeadline(t.Context(), start.Add(72*time.Hour))
		defer cancel()
		if err := l.Wait(long, "k"); err != nil || time.Since(start).Round(time.Second) != 40*time.Hour {
			t.Errorf("with a deadline of 72 h, %v after %v", err, time.Since(start))
		}
	})
}

// Those who do not wait get nothing beside a queue that asks for all there is, and the rest beside one that asks for less.
func TestAShareIsLeftForThoseWhoDoNotWait(t *testing.T) {
	for share, want := range map[int64][2]int{100: {0, 0}, 95: {45, 55}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, memstore.New(nil), nil, sash.PerSecond(100))
			waiters, err := l.With(sash.PerSecond(share))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range 200 {
				group.Go(func() {
					var err error
					for err == nil {
						err = waiters.Wait(ctx, "k")
					}
				})
			}
			synctest.Wait()
			now := 0
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				if res, err := l.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				} else if res.Allowed {
					now++
				}
			}
			stop()
			group.Wait()
			if now < want[0] || now > want[1] {
				t.Errorf("with %d of 100 for those who wait, others get %d in 10 s, want %d to %d", share, now, want[0], want[1])
			}
		})
	}
}

// While the store is down failover answers those who come to wait, by its mode. Those who have a place start at its time.
func TestWaitingWhileFailoverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(nil))
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
		store.Fail(errors.New("down"))
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
