package coalesce_test

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
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/stack/internal/coalesce"
	"example.com/sash/storetest"
)

func TestTheSuite(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		return storetest.Harness{
			Store:   coalesce.New(memstore.New(&memstore.Options{Now: clock.Now})),
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	})
}

func TestCallsThatComeTogetherAreOneRoundTripAndOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFar()
		l := limiter(t, coalesce.New(store), sash.PerMinute(1000))
		start := time.Now()
		instants := make(map[time.Time]int)
		left := make(map[int64]bool)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				res, err := l.Allow(t.Context(), "k")
				if err != nil || !res.Allowed {
					t.Errorf("%+v, %v", res, err)
				}
				mu.Lock()
				defer mu.Unlock()
				instants[res.At]++
				left[res.Remaining] = true
			})
		}
		wg.Wait()
		if n := store.calls.Load(); n != 2 {
			t.Errorf("%d calls of the store; one for the first caller and one for the other 99 are enough", n)
		}
		if len(instants) != 2 {
			t.Errorf("charged at %d instants; two entries are enough", len(instants))
		}
		if took := time.Since(start); took != 2*store.trip {
			t.Errorf("took %v; two round trips are %v", took, 2*store.trip)
		}
		for n := int64(900); n < 1000; n++ {
			if !left[n] {
				t.Errorf("no caller sees %d left; one by one, a caller does", n)
			}
		}
	})
}

func TestABatchThatFitsInPartAdmitsExactlyWhatFits(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			store := newFar()
			limits := []sash.Limit{sash.Every(1+random.Int64N(60), 20*time.Millisecond), sash.Every(1+random.Int64N(90), 50*time.Millisecond)}
			l := limiter(t, coalesce.New(store), limits...)
			most := min(limits[0].Units, limits[1].Units)
			var mu sync.Mutex
			var admitted, refused []judge.Call
			var wg sync.WaitGroup
			for range 200 {
				cost := 1 + random.Int64N(min(most, 7))
				pause := time.Duration(random.Int64N(int64(30 * time.Millisecond)))
				wg.Go(func() {
					time.Sleep(pause)
					res, err := l.AllowN(t.Context(), "k", cost)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if res.Allowed {
						admitted = append(admitted, judge.Call{At: res.At, Cost: cost})
					} else {
						refused = append(refused, judge.Call{At: res.At, Cost: cost})
					}
				})
			}
			wg.Wait()
			if err := judge.CheckHistory(limits, admitted); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if err := judge.CheckRefusals(limits, admitted, refused); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if n := store.most.Load(); n != 1 {
				t.Errorf("seed %d: %d decisions of one key were under way at once", seed, n)
			}
		})
	}
}

func TestABatchLastsAsLongAsItsMostPatientCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFar()
		l := limiter(t, coalesce.New(store), sash.PerMinute(10))
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = l.Allow(t.Context(), "k") })
		synctest.Wait()
		for _, patience := range []time.Duration{store.trip + store.trip/4, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			wg.Go(func() {
				res, err := l.Allow(ctx, "k")
				if patient := patience == time.Minute; patient != (err == nil && res.Allowed) {
					t.Errorf("with %v: %+v, %v", patience, res, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestAFailureReachesEveryCallerOfTheBatch(t *testing.T) {
	for name, after := range map[string]func(cost int64) error{
		"it fails": func(int64) error { return errors.New("out of order") },
		"it panics": func(cost int64) error {
			if cost > 1 { // where many calls are one
				panic("a bug")
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := newFar()
			store := drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				return errors.Join(inner.Do(ctx, b), after(b.Ops[0].Cost))
			})
			l := limiter(t, coalesce.New(store), sash.PerMinute(10))
			var failed atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := l.Allow(t.Context(), "k"); errors.Is(err, sash.ErrUnavailable) {
						failed.Add(1)
					}
				})
			}
			wg.Wait()
			if want := map[string]int64{"it fails": 4, "it panics": 3}[name]; failed.Load() != want { // the first goes alone
				t.Errorf("%s: %d of 4 calls got an error, want %d", name, failed.Load(), want)
			}
		})
	}
}

// A far store is in memory, a round trip away. It works only in a synctest bubble.
type far struct {
	*memstore.Store
	trip     time.Duration
	calls    atomic.Int64
	underWay atomic.Int64
	most     atomic.Int64 // decisions under way at the same time

	mu   sync.Mutex
	each []int // guarded by mu: the requests of each round trip
}

func newFar() *far { return &far{Store: memstore.New(nil), trip: time.Millisecond} }

func (f *far) Powers() driver.Powers { return f.Store.Powers() | driver.CanEach }

func (f *far) Do(ctx context.Context, b *driver.Batch) error {
	if b.Ops[0].Kind != driver.Charge {
		return f.Store.Do(ctx, b)
	}
	f.calls.Add(1)
	if n := f.underWay.Add(1); n > f.most.Load() {
		f.most.Store(n)
	}
	defer f.underWay.Add(-1)
	f.mu.Lock()
	f.each = append(f.each, len(b.Ops))
	f.mu.Unlock()
	if err := pass(ctx, f.trip/2); err != nil {
		return err
	}
	err := f.Store.Do(ctx, b)
	if late := pass(ctx, f.trip/2); late != nil {
		return late
	}
	return err
}

// pass waits for a while, or until the context ends.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func limiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func policy(t testing.TB, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	p, err := sash.NewPolicy(nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// booking returns a request that may be booked for any time, and given back.
func booking(p *driver.Policy, cost int64) driver.Request {
	return driver.Request{Key: "k", Cost: cost, Policy: p, Within: driver.MaxAhead, MaySettle: true}
}
