package denials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// A counted store is in memory, and up to two trips away when it is in a synctest bubble.
type counted struct {
	*memstore.Store
	calls     atomic.Int64
	out, back time.Duration
}

func (c *counted) Do(ctx context.Context, b *driver.Batch) error {
	if op := &b.Ops[0]; op.Kind != driver.Charge || op.ID != "" || len(b.Ops) > 1 {
		return c.Store.Do(ctx, b)
	}
	c.calls.Add(1)
	time.Sleep(c.out)
	err := c.Store.Do(ctx, b)
	time.Sleep(c.back)
	return err
}

func newLimiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ask(t testing.TB, l *sash.Limiter, key string, cost int64) sash.Result {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestARefusalIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Store: memstore.New(nil), out: time.Millisecond, back: 2 * time.Millisecond}
		store := New(inner, 0)
		l := newLimiter(t, store, sash.Every(5, 500*time.Millisecond))
		first := ask(t, l, "k", 5)
		refused := ask(t, l, "k", 1)
		room := first.At.Add(500 * time.Millisecond)
		if free := refused.At.Add(refused.RetryAfter); !free.Equal(room) || refused.Source != driver.FromStore {
			t.Fatalf("%+v", refused)
		}
		inner.calls.Store(0)
		for range 100 {
			time.Sleep(time.Millisecond)
			res := ask(t, l, "k", 1)
			if res.Allowed || res.Source != driver.FromCache {
				t.Fatalf("%+v", res)
			}
			if free := res.At.Add(res.RetryAfter); !free.Equal(room) {
				t.Fatalf("room at %v; said to be at %v", room, free)
			}
			if l := res.Limits()[0]; !l.Refused || l.RetryAfter != res.RetryAfter || l.Limit.Units != 5 {
				t.Fatalf("%+v", l)
			}
		}
		if n := inner.calls.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
		ask(t, l, "k", 2)
		ask(t, l, "k", 2)
		if n := inner.calls.Load(); n != 1 {
			t.Errorf("the store was asked %d times for another cost; once is right", n)
		}
	})
}

// What another process does is seen when the refusal is as old as it may be: a reset, and a refund, which takes units from a
// charge that nobody had reserved, so it is no settlement that the store expected.
func TestARefusalIsNotKeptLongerThanMaxAge(t *testing.T) {
	for name, makeRoom := range map[string]func(context.Context, driver.Store, driver.Settlement) error{
		"reset": func(ctx context.Context, there driver.Store, set driver.Settlement) error {
			return drivertest.Of(there).Forget(ctx, set.Key, set.Policy)
		},
		"refund": func(ctx context.Context, there driver.Store, set driver.Settlement) error {
			return drivertest.Of(there).Settle(ctx, set)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := memstore.New(nil)
				here, there := newLimiter(t, New(inner, 100*time.Millisecond), sash.PerHour(2)), New(inner, 0)
				charged := ask(t, here, "k", 2)
				if ask(t, here, "k", 1).Allowed || ask(t, newLimiter(t, there, sash.PerHour(2)), "k", 1).Allowed {
					t.Fatal("a third unit of 2 was admitted")
				}
				req := driver.Request{Key: "k", Cost: 2, Policy: here.Policy()}
				if err := makeRoom(t.Context(), there, driver.Settlement{Request: req, At: charged.At.UnixMicro(), Units: 1}); err != nil {
					t.Fatal(err)
				}
				if !ask(t, newLimiter(t, there, sash.PerHour(2)), "k", 1).Allowed {
					t.Error("it is not seen where it was done")
				}
				if err := makeRoom(t.Context(), there, driver.Settlement{Request: req, At: charged.At.UnixMicro(), Units: 0}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100*time.Millisecond - time.Nanosecond)
				if res := ask(t, here, "k", 1); res.Allowed || res.Source != sash.FromCache {
					t.Error("the refusal was not kept for so long")
				}
				time.Sleep(time.Nanosecond)
				if res := ask(t, here, "k", 1); !res.Allowed {
					t.Error("refused after that, though another process has made room")
				}
			})
		})
	}
}

func TestARefusalThatWasOnItsWayDuringAResetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Store: memstore.New(nil)}
		l := newLimiter(t, New(inner, 0), sash.PerHour(1))
		ask(t, l, "k", 1)
		inner.back = 10 * time.Millisecond
		var wg sync.WaitGroup
		wg.Go(func() { ask(t, l, "k", 1) })
		synctest.Wait() // decided, and on its way back
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if res := ask(t, l, "k", 1); !res.Allowed {
			t.Error("refused after a reset by a refusal from before it")
		}
	})
}

// Two runs of the same arrivals, with and without the cache, give the same verdicts. In both, another
// process charges, reserves and settles in between. What a kept refusal says of the time is as of the
// store's answer: what others did since can only make it later.
func TestItRefusesNothingThatTheStoreWouldAdmit(t *testing.T) {
	kept, keptBookings, ahead := 0, 0, 0
	for seed := range uint64(200) {
		type verdict struct {
			call    string
			allowed bool
			retry   time.Duration
			delay   int64
			kept    bool
			books   bool
		}
		verdicts := func(cached bool) (log []verdict) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				inner := memstore.New(nil)
				var store driver.Store = inner
				if cached {
					cache := New(inner, time.Hour)
					cache.size(1, 1+random.IntN(4))
					store = cache
				} else {
					random.IntN(4)
				}
				plans := [][]sash.Limit{ // with one longest window: a store may forget what a shorter one does not need
					{sash.Every(12, 3*time.Second)},
					{sash.Every(10, time.Second), sash.Every(15, 3*time.Second)},
					{sash.Every(20, time.Second), sash.Every(25, 3*time.Second)},
				}
				var open []*sash.Reservation
				for range 400 {
					time.Sleep(time.Duration(random.IntN(100_000)) * time.Microsecond)
					key := fmt.Sprint("k", random.IntN(3))
					plan := plans[random.IntN(len(plans))]
					ours, others := newLimiter(t, store, plan...), newLimiter(t, inner, plan...)
					cost := 1 + random.Int64N(5)
					switch random.IntN(20) {
					case 0:
						if r, err := ours.Reserve(t.Context(), key, cost, nil); err == nil && r.Allowed() {
							open = append(open, r)
						}
					case 1:
						if r, err := others.Reserve(t.Context(), key, cost, nil); err == nil && r.Allowed() {
							open = append(open, r)
						}
					case 2:
						if len(open) > 0 {
							_ = open[0].Settle(t.Context(), random.Int64N(3))
							open = open[1:]
						}
					case 3:
						_ = ours.Reset(t.Context(), key)
					case 4, 5:
						ask(t, others, key, cost)
					case 6, 7, 8, 9, 10: // a booking that nobody gives back
						in := store
						if random.IntN(4) == 0 {
							in = inner
						}
						req := driver.Request{Key: key, Cost: cost, Policy: ours.Policy(), Within: within(random.Int64N(1000))}
						answer, err := driver.Decide(t.Context(), in, req)
						if err != nil {
							t.Fatal(err)
						}
						call := fmt.Sprintf("booking within %d: %s cost %d under %v", req.Within, key, cost, plan)
						retry := time.Duration(answer.Retry()) * time.Microsecond
						log = append(log, verdict{call, answer.Allowed(), retry, answer.Delay, answer.Source == driver.FromCache, true})
					default:
						res := ask(t, ours, key, cost)
						call := fmt.Sprintf("at %v: %s cost %d under %v", res.At, key, cost, plan)
						log = append(log, verdict{call, res.Allowed, res.RetryAfter, 0, res.Source == driver.FromCache, false})
					}
				}
			})
			return log
		}
		with, without := verdicts(true), verdicts(false)
		for i, w := range with {
			o := without[i]
			if w.call != o.call || w.allowed != o.allowed || w.delay != o.delay || w.retry > o.retry || !w.kept && w.retry != o.retry {
				t.Fatalf("seed %d, call %d: with the cache %+v, without %+v", seed, i, w, o)
			}
			if w.kept {
				kept++
			}
			if w.kept && w.books {
				keptBookings++
			}
			if w.delay > 0 {
				ahead++
			}
		}
	}
	if kept < 800 || keptBookings < 200 || ahead < 1000 {
		t.Errorf("only %d calls were answered from memory, %d of them bookings, and %d were booked ahead", kept, keptBookings, ahead)
	}
	t.Logf("%d calls were answered from memory, %d of them bookings, and %d were booked ahead", kept, keptBookings, ahead)
}

// Refusals count in the store until there is a block, which is then answered from memory.
func TestARefusalThatCountsForABlockIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Store: memstore.New(nil)}
		store := New(inner, 0)
		l, err := sash.New(store, &sash.Options{Block: sash.Block{Refusals: 4, For: time.Minute}}, sash.PerHour(1))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if res := ask(t, l, "k", 1); res.Allowed != (i == 0) || res.Blocked != (i >= 4) {
				t.Errorf("call %d: allowed %v, blocked %v", i, res.Allowed, res.Blocked)
			}
		}
		if n := inner.calls.Load(); n != 5 {
			t.Errorf("the store was asked %d times, want 5", n)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if res := ask(t, l, "k", 1); !res.Allowed {
			t.Errorf("after a reset: %+v", res)
		}
	})
}

// within returns the time in milliseconds as a request has it.
func within(ms int64) int64 { return ms * 1000 }
