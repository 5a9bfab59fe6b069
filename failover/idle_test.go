package failover_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// algorithm returns options for an algorithm.
func algorithm(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Millisecond
	}
	return opts
}

// Close writes what is waiting, once and within its time, and what it cannot write is counted.
func TestCloseWritesTheBacklog(t *testing.T) {
	const keys = 200 // of 2 units each
	for name, c := range map[string]struct {
		do          func(context.Context) error // of the store when it is closed
		takes       time.Duration               // at most
		least, most int64                       // units that are written
	}{
		"the store is back":           {nil, 2 * time.Second, 2 * keys, 2 * keys},
		"the store is gone":           {fails(errRefused), 4 * time.Second, 0, 0},
		"the store hangs":             {stalls, 4*time.Second + failover.DefaultBudget, 0, 0},
		"the store ignores contexts":  {hangs(time.Minute), 4*time.Second + failover.DefaultBudget, 0, 0},
		"the store is back soon":      {backAfter(time.Second), 4 * time.Second, 2 * keys, 2 * keys},
		"the store is back, and slow": {hangs(40 * time.Millisecond), 4*time.Second + failover.DefaultBudget, 2 * 50, 2 * 100},
	} {
		bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, inFour, sash.PerHour(40))
			inner.becomes(fails(errRefused))
			for i := range keys {
				allow(t, l, fmt.Sprint(i), 2)
			}
			time.Sleep(10 * time.Second)
			inner.becomes(c.do)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			start := time.Now()
			err := store.Close(ctx)
			if took := time.Since(start); took > c.takes {
				t.Errorf("it took %v", took)
			}
			got := store.Stats()
			if got.Written < c.least || got.Written > c.most || got.Backlog != 0 || got.Written+got.Lost+got.Doubtful != 2*keys {
				t.Errorf("%+v", got)
			}
			if (err == nil) != (got.Written == 2*keys) {
				t.Errorf("%+v, and the error is %v", got, err)
			}
			time.Sleep(2 * time.Minute) // what hangs has ended
			inner.becomes(nil)
			time.Sleep(time.Minute)
			if calls, _ := inner.seen(); calls != 0 || store.Stats().InFlight != 0 {
				t.Errorf("%d calls after the end; %+v", calls, store.Stats())
			}
		})
	}
}

// backAfter refuses connections for a while.
func backAfter(d time.Duration) func(context.Context) error {
	var first time.Time
	return func(context.Context) error {
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) < d {
			return errRefused
		}
		return nil
	}
}

// A closed store still decides. What it admits locally is lost, and counted.
func TestAClosedStoreStillDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, inFour, sash.PerHour(40))
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if err := store.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if res := allow(t, l, "k", 1); res.Source != driver.FromStore {
			t.Errorf("%+v", res)
		}
		inner.becomes(fails(errRefused))
		if res := allow(t, l, "k", 4); !res.Allowed || res.Source != driver.FromLocal {
			t.Errorf("%+v", res)
		}
		if got := store.Stats(); got != (failover.Stats{Lost: 4}) {
			t.Errorf("%+v", got)
		}
		closed := guarded(t, inner, failover.Options{Modes: always(failover.Closed)})
		if err := closed.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
