package stack_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/stack"
)

// A far store is in memory, a millisecond away, and counts the calls that reach it.
type far struct {
	*memstore.Store
	calls atomic.Int64
}

func (f *far) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	f.calls.Add(1)
	time.Sleep(time.Millisecond)
	return f.Store.Decide(ctx, req)
}

func (f *far) DecideEach(ctx context.Context, reqs []driver.Request) ([]driver.Answer, error) {
	f.calls.Add(1)
	time.Sleep(time.Millisecond)
	return driver.Passthrough{Next: f.Store}.DecideEach(ctx, reqs)
}

// A caller over its limit comes every 10 ms for 10 s. It reaches the store once for each denial, which lasts a second, or
// once for each refusal that lease keeps, for two longest leases. With lease alone each call reaches the store where the
// limit is not leased: because it has too few units, or is one of the calendar.
func TestRefusedCallsReachTheStoreSeldom(t *testing.T) {
	stacked := func(longest time.Duration) func(*testing.T, driver.Store) driver.Store {
		return func(t *testing.T, store driver.Store) driver.Store {
			return newStack(t, store, &stack.Options{Lease: longest})
		}
	}
	alone := func(t *testing.T, store driver.Store) driver.Store {
		s, err := lease.New(store, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name        string
		open        func(*testing.T, driver.Store) driver.Store
		limit       sash.Limit
		least, most int64 // calls of 1,000 that reach the store
	}{
		{"stack, 10 an hour", stacked(0), sash.PerHour(10), 10, 10},
		{"stack, 1000 an hour", stacked(0), sash.PerHour(1000), 10, 10},
		{"stack with leases, 10 an hour", stacked(100 * time.Millisecond), sash.PerHour(10), 10, 10},
		{"stack with leases, 100 a day", stacked(100 * time.Millisecond), sash.PerCalendar(100, sash.CalendarDay, time.UTC), 10, 10},
		{"stack with leases, 1000 an hour", stacked(100 * time.Millisecond), sash.PerHour(1000), 1, 50},
		{"lease alone, 10 an hour", alone, sash.PerHour(10), 1000, 1000},
		{"lease alone, 100 a day", alone, sash.PerCalendar(100, sash.CalendarDay, time.UTC), 1000, 1000},
		{"lease alone, 1000 an hour", alone, sash.PerHour(1000), 1, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &far{Store: memstore.New(nil)}
				l := newLimiter(t, c.open(t, store), c.limit)
				for admitted := true; admitted; {
					admitted = allow(t, l, "k").Allowed
				}
				time.Sleep(2 * time.Second) // what was kept of the first refusal is over
				store.calls.Store(0)
				ticks := time.NewTicker(10 * time.Millisecond)
				defer ticks.Stop()
				for range 1000 {
					<-ticks.C
					if allow(t, l, "k").Allowed {
						t.Fatal("admitted over the limit")
					}
				}
				n := store.calls.Load()
				t.Logf("%d of 1000 refused calls reached the store", n)
				if n < c.least || n > c.most {
					t.Errorf("%d of 1000 calls reached the store, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}
