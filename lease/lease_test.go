package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

const longest = 100 * time.Millisecond

// A far store is in memory, a round trip away. It works only in a synctest bubble.
type far struct {
	*memstore.Store
	out, back time.Duration
	calls     atomic.Int64
	most      atomic.Int64 // units that were asked for at once
	silent    atomic.Bool  // charges, and then fails
}

var errLost = errors.New("the answer was lost")

func (f *far) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	f.calls.Add(1)
	if req.Cost > f.most.Load() {
		f.most.Store(req.Cost)
	}
	select {
	case <-time.After(f.out):
	case <-ctx.Done():
		return driver.Answer{}, ctx.Err()
	}
	res, err := f.Store.Decide(ctx, req)
	select {
	case <-time.After(f.back):
		if f.silent.Load() {
			return driver.Answer{}, errLost
		}
		return res, err
	case <-ctx.Done():
		return driver.Answer{}, ctx.Err()
	}
}

func newFar() *far {
	return &far{Store: memstore.New(nil), out: 300 * time.Microsecond, back: 700 * time.Microsecond}
}

// newFarAtRandom returns a store that is up to 20 ms away, each way.
func newFarAtRandom(random *rand.Rand) *far {
	f := newFar()
	f.out, f.back = time.Duration(random.IntN(20_000))*time.Microsecond, time.Duration(random.IntN(20_000))*time.Microsecond
	return f
}

func newStore(t testing.TB, inner driver.Store) *lease.Store {
	t.Helper()
	s, err := lease.New(inner, longest)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestABusyKeyIsDecidedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(100_000))
		const calls = 20_000
		fromLease := 0
		var last sash.Result
		for range calls {
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Source == driver.FromLease {
				fromLease++
			}
			if res.Source == driver.FromLease && res.At.Equal(last.At) && res.Remaining != last.Remaining-1 {
				t.Fatalf("%d left, and one call later %d", last.Remaining, res.Remaining)
			}
			last = res
			if res.Limits()[0].Limit.Window != time.Minute {
				t.Fatalf("the limit is said to be %v", res.Limits()[0].Limit)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if n := inner.calls.Load(); n > calls/20 || fromLease < calls*9/10 {
			t.Errorf("the store was asked %d times for %d calls, %d of them out of a lease", n, calls, fromLease)
		}
		if n := inner.most.Load(); n > 2*int64(longest/(100*time.Microsecond)) {
			t.Errorf("%d units were leased at once; %v have a tenth of a millisecond each", n, longest)
		}
	})
}

func TestAQuietKeyIsDecidedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(100_000))
		for range 100 {
			if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != driver.FromStore {
				t.Fatalf("%+v, %v", res, err)
			}
			time.Sleep(longest)
		}
	})
}

// Several processes, each with its own lease.Store, on one store: random demand and costs, reservations,
// callers that give up. What all admitted, at the time at which they said so, keeps to every limit.
func TestNeverMoreThanTheLimitInAnyWindow(t *testing.T) {
	var leased, admittedInAll atomic.Int64
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			inner := newFarAtRandom(random)
			opts := &sash.Options{}
			if seed%2 == 1 {
				opts = &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: 5 * time.Millisecond}
			}
			limits := []sash.Limit{
				sash.Every(50+random.Int64N(2000), time.Duration(150+random.IntN(400))*time.Millisecond),
				sash.Every(500+random.Int64N(4000), time.Duration(600+random.IntN(900))*time.Millisecond),
			}
			var mu sync.Mutex
			var admitted []judge.Call
			var wg sync.WaitGroup
			for p := range 3 {
				store := newStore(t, inner)
				l := newLimiter(t, store, opts, limits...)
				for w := range 6 {
					random := rand.New(rand.NewPCG(seed, uint64(100*p+w)))
					pause := 1 + random.IntN(4000)
					wg.Go(func() {
						for range 400 {
							time.Sleep(time.Duration(random.IntN(pause)) * time.Microsecond)
							cost := 1 + random.Int64N(3)
							ctx, cancel := t.Context(), func() {}
							if random.IntN(50) == 0 {
								ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(20))*time.Millisecond)
							}
							if random.IntN(10) == 0 {
								r, err := l.Reserve(ctx, "k", cost)
								if err == nil && r.Allowed() {
									worth, at := random.Int64N(cost+1), r.Result().At
									if r.Result().Source == driver.FromLease {
										at = time.Now()
									}
									mu.Lock()
									admitted = append(admitted, judge.Call{At: at, Cost: worth})
									mu.Unlock()
									_ = r.Settle(t.Context(), worth)
								}
								cancel()
								continue
							}
							res, err := l.AllowN(ctx, "k", cost)
							now := time.Now()
							cancel()
							if err != nil || !res.Allowed {
								continue
							}
							// Out of a lease it is admitted now; else when the store decided.
							at := res.At
							if res.Source == driver.FromLease {
								at = now
								leased.Add(1)
								if held := now.Sub(res.At); held > longest {
									t.Errorf("seed %d: a unit was spent %v after it was charged", seed, held)
								}
							}
							admittedInAll.Add(1)
							mu.Lock()
							admitted = append(admitted, judge.Call{At: at, Cost: cost})
							mu.Unlock()
						}
						_ = store.Release(t.Context())
					})
				}
			}
			wg.Wait()
			time.Sleep(time.Second) // for limiters that still look at the store
			if err := judge.CheckHistory(limits, admitted); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	if leased.Load() < admittedInAll.Load()/4 {
		t.Errorf("only %d of %d were admitted out of leases", leased.Load(), admittedInAll.Load())
	}
	t.Logf("%d of %d were admitted out of leases", leased.Load(), admittedInAll.Load())
}

// How much less: callers who never stop get nearly N units every W + τ.
func TestAllButAFewUnitsAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		const units, window = 10_000, time.Second
		var admitted atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 4 {
			l := newLimiter(t, newStore(t, inner), nil, sash.Every(units, window))
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if res, err := l.Allow(ctx, "k"); err == nil && res.Allowed {
							admitted.Add(1)
						}
						time.Sleep(500 * time.Microsecond)
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Second) // for limiters that still look at the store
		most := int64(22 * time.Second / (window + longest) * units)
		t.Logf("%d of the %d that fit into windows longer by a lease", admitted.Load(), most)
		if admitted.Load() < most*9/10 {
			t.Errorf("only %d of %d", admitted.Load(), most)
		}
	})
}

func TestSmallAndNearlyExhaustedLimitsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		a, b := newLimiter(t, newStore(t, inner), nil, sash.Every(10, time.Second)), newLimiter(t, newStore(t, inner), nil, sash.Every(10, time.Second))
		admitted := 0
		for range 10 {
			for _, l := range []*sash.Limiter{a, b} {
				if res, err := l.Allow(t.Context(), "k"); err == nil && res.Allowed {
					admitted++
				}
			}
		}
		if admitted != 10 {
			t.Errorf("%d of 10 were admitted", admitted)
		}
	})
}

func TestOtherPoliciesAreDecidedAsTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		opts  *sash.Options
		limit sash.Limit
	}{
		"calendar":      {nil, sash.PerCalendar(1000, sash.CalendarDay, nil)},
		"approximate":   {&sash.Options{Algorithm: sash.GCRA}, sash.PerMinute(1000)},
		"count refused": {&sash.Options{CountRefused: true}, sash.PerMinute(1000)},
	} {
		bubble(t, name, func(t *testing.T) {
			inner := newFar()
			l := newLimiter(t, newStore(t, inner), c.opts, c.limit)
			plain := newLimiter(t, memstore.New(nil), c.opts, c.limit)
			for range 300 {
				res, err := l.Allow(t.Context(), "k")
				if err != nil || res.Source != driver.FromStore {
					t.Fatalf("%+v, %v", res, err)
				}
				if same, _ := plain.Allow(t.Context(), "k"); name != "approximate" && same.Remaining != res.Remaining {
					t.Fatalf("%d left; %d without leases", res.Remaining, same.Remaining)
				}
			}
			if n := inner.calls.Load(); n != 300 {
				t.Errorf("300 calls were %d decisions", n)
			}
		})
	}
}

func TestABlockLeavesSomethingToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(400))
		for range 300 {
			if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		if n := inner.most.Load(); n < 2 || n > 400/8 {
			t.Errorf("%d units of 400 were leased at once", n)
		}
		time.Sleep(time.Second) // an errand may be under way
	})
}

// warm makes a key busy.
func warm(t *testing.T, l *sash.Limiter) {
	t.Helper()
	for range 300 {
		if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

func TestWrongLeasesAreRefused(t *testing.T) {
	for _, d := range []time.Duration{0, -1, time.Microsecond, time.Hour, time.Second + 1} {
		if _, err := lease.New(memstore.New(nil), d); err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

func BenchmarkLeased(b *testing.B) {
	l := newLimiter(b, newStore(b, memstore.New(nil)), &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: 10 * time.Millisecond}, sash.PerMinute(1<<39))
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if res, _ := l.Allow(ctx, "k"); !res.Allowed {
				b.Error("refused")
			}
		}
	})
}

// bubble runs a subtest in a synctest bubble.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
