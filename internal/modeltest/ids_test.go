package modeltest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// fewIDs are thresholds under which a subject remembers 4 to 8 IDs.
var fewIDs = threshold.Scripts.But(threshold.Table{"BUCKET": 2, "LOG_IDS": 8, "HASH_IDS": 8})

// A subject that has forgotten IDs of settlements gives no units back twice, however old ones are repeated. What it has
// just seen it remembers.
func TestASubjectWithTooManyIDs(t *testing.T) {
	server := redistest.Start(t)
	before := threshold.IDs
	threshold.IDs = 6
	defer func() { threshold.IDs = before }()
	for _, a := range sash.Algorithms() {
		t.Run("redis/"+a.String(), func(t *testing.T) {
			for seed := range uint64(15) {
				store, clock, scripts := virtual(t, server.Addr(), nil)
				scripts.thresholds = fewIDs
				if err := walkIDs(t, store, clock, a, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
		t.Run("memory/"+a.String(), func(t *testing.T) {
			for seed := range uint64(100) {
				clock := judge.NewClock(start)
				if err := walkIDs(t, memstore.New(&memstore.Options{Now: clock.Now}), clock, a, seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// The walk counts within one window, which no charge leaves.
func walkIDs(t testing.TB, store driver.Deduplicator, clock *judge.Clock, a sash.Algorithm, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 17))
	clock.Advance(clock.Now().Truncate(time.Hour).Add(time.Hour + time.Second).Sub(clock.Now()))
	policy, err := sash.NewPolicy(options(a), sash.Every(10_000, time.Hour))
	if err != nil {
		return err
	}
	req := driver.Request{Key: fmt.Sprint(a, seed), Policy: policy, MaySettle: true}
	used := func() int64 {
		res, err := store.(driver.Store).Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return 10_000 - res.Remaining()
	}
	// unchanged does something that the store has just done once more.
	unchanged := func(what string, again func() error) error {
		before := used()
		if err := again(); err != nil {
			return err
		}
		if after := used(); after != before {
			return fmt.Errorf("%d were in use, and %d after %s was repeated", before, after, what)
		}
		return nil
	}
	var open, settled []driver.Settlement
	var least int64 // that are in use
	for step := range 200 {
		clock.Advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
		switch n := rng.IntN(3); {
		case n == 0 && len(open) > 0:
			i := rng.IntN(len(open))
			set := open[i]
			open = append(open[:i:i], open[i+1:]...)
			set.ID, set.Units = fmt.Sprint("s", step), rng.Int64N(2*set.Request.Cost)
			settle := func() error { return store.(driver.Settler).Settle(t.Context(), set) }
			if err := settle(); err != nil {
				return err
			}
			least += set.Units - set.Request.Cost
			settled = append(settled, set)
			if err := unchanged("a settlement", settle); err != nil {
				return err
			}
		case n == 1 && len(settled) > 0:
			if err := store.(driver.Settler).Settle(t.Context(), settled[rng.IntN(len(settled))]); err != nil {
				return err
			}
		default:
			call := req
			call.Cost = 1 + rng.Int64N(5)
			id := fmt.Sprint("c", step)
			res, err := store.DecideOnce(t.Context(), id, call)
			if err != nil {
				return err
			}
			least += call.Cost
			if rng.IntN(3) > 0 {
				open = append(open, driver.Settlement{Request: call, At: res.At, Source: res.Source})
			}
			err = unchanged("a call", func() error {
				again, err := store.DecideOnce(t.Context(), id, call)
				if err == nil && (again.At != res.At || !again.Allowed()) {
					err = fmt.Errorf("a call got %+v, and repeated %+v", res, again)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if used := used(); used < least && a != sash.GCRA { // whose debt shrinks
			return fmt.Errorf("step %d: %d are in use, after charges and settlements of %d", step, used, least)
		}
	}
	return nil
}

// Reservations that are cancelled leave nothing in Redis but the key of their subject, however many there are, and that
// is bounded.
func TestCancelledReservationsLeaveNoKeys(t *testing.T) {
	const calls = 10_000
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.FixedWindow} { // one of each type of key
		for _, subjects := range []int{1, calls / 10} {
			t.Run(fmt.Sprint(a, "/", subjects), func(t *testing.T) {
				server := redistest.Start(t)
				client := newClient(server.Addr())
				t.Cleanup(func() { client.Close() })
				store := redisstore.New(&scripter{client: client}, nil)
				l := newLimiter(t, store, options(a), sash.PerHour(1000))
				for i := range calls {
					r, err := l.Reserve(t.Context(), fmt.Sprint(i%subjects), 1)
					if err != nil || !r.Allowed() {
						t.Fatalf("reservation %d: %v", i, err)
					}
					if err := r.Cancel(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if keys := client.DBSize(t.Context()).Val(); keys != int64(subjects) {
					t.Errorf("%d keys are left of %d subjects", keys, subjects)
				}
				var bytes int64
				for i := range subjects {
					bytes += client.MemoryUsage(t.Context(), store.Key(fmt.Sprint(i), l.Policy())).Val()
				}
				each := bytes / int64(subjects)
				// Redis reserves twice what a string needs when it grows.
				if most := 2 * (20*threshold.Scripts["LOG_IDS"] + 1000); each > most {
					t.Errorf("a subject takes %d bytes, more than %d", each, most)
				}
				t.Logf("%d bytes a subject after %d reservations each", each, calls/subjects)
			})
		}
	}
}

// A subject remembers as many IDs as promised.
func TestHowManyIDsASubjectRemembers(t *testing.T) {
	server := redistest.Start(t)
	client := newClient(server.Addr())
	t.Cleanup(func() { client.Close() })
	redis := redisstore.New(&scripter{client: client}, nil)
	for _, c := range []struct {
		store driver.Store
		a     sash.Algorithm
		many  int
	}{
		{redis, sash.SlidingLog, 5000},
		{redis, sash.SortedSetLog, 300},
		{redis, sash.FixedWindow, 300},
		{memstore.New(nil), sash.SlidingLog, 5000},
	} {
		l := newLimiter(t, c.store, options(c.a), sash.Every(100_000, 24*time.Hour))
		var at []time.Time
		for i := range 2 * c.many {
			res, err := l.AllowOnce(t.Context(), fmt.Sprint(i%c.many), "many", 1)
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if i < c.many {
				at = append(at, res.At)
			} else if !res.At.Equal(at[i%c.many]) {
				t.Fatalf("%T, %v: call %d of %d is a new one when it is repeated", c.store, c.a, i%c.many, c.many)
			}
		}
	}
}
