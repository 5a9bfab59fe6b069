package lease_test

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/window"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

const longest = 100 * time.Millisecond

// A far store is in memory, and a while away, each way. It works only in a synctest bubble.
type far struct {
	*memstore.Store
	way   time.Duration
	asked atomic.Int64 // decisions
	calls atomic.Int64 // with settlements
	most  atomic.Int64 // units that were asked for at once
	cut   atomic.Bool  // no question arrives
}

// there takes a question to the store, and the answer back.
func (f *far) there(ctx context.Context, do func() error) error {
	f.calls.Add(1)
	if f.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := pass(ctx, f.way); err != nil {
		return err
	}
	err := do()
	if late := pass(ctx, f.way); late != nil {
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

func (f *far) Do(ctx context.Context, b *driver.Batch) error {
	op := &b.Ops[0]
	if len(b.Ops) > 1 || op.Kind != driver.Charge && op.Kind != driver.Settle {
		return f.Store.Do(ctx, b)
	}
	if op.Kind == driver.Charge && op.ID == "" {
		f.asked.Add(1)
		f.most.Store(max(f.most.Load(), op.Cost))
	}
	return f.there(ctx, func() error { return f.Store.Do(ctx, b) })
}

func newFar(way time.Duration) *far { return &far{Store: memstore.New(nil), way: way} }

const (
	hop  = 500 * time.Microsecond
	trip = 150 * time.Millisecond // to a home over an ocean, and back
)

func newStore(t testing.TB, inner driver.Store) *lease.Store {
	t.Helper()
	return lease.Must(lease.New(inner, longest))(t)
}

func shared(t testing.TB, home driver.Store, region window.Holder, longest time.Duration, opts *lease.Options) *lease.Store {
	t.Helper()
	return lease.Must(lease.Shared(home, region, longest, opts))(t)
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return lease.Must(sash.New(store, opts, limits...))(t)
}

func TestABusyKeyIsDecidedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar(hop)
		l := newLimiter(t, newStore(t, inner), nil, sash.PerMinute(100_000))
		const calls = 20_000
		fromLease := 0
		var last sash.Result
		for range calls {
			res := admitted(t, l, "k")
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
		if n := inner.asked.Load(); n > calls/20 || fromLease < calls*9/10 {
			t.Errorf("the store was asked %d times for %d calls, %d of them out of a lease", n, calls, fromLease)
		}
		if n := inner.most.Load(); n > 2*int64(longest/(100*time.Microsecond)) {
			t.Errorf("%d units were leased at once; %v have a tenth of a millisecond each", n, longest)
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
			inner := newFar(hop)
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
			if n := inner.asked.Load(); n != 300 {
				t.Errorf("300 calls were %d decisions", n)
			}
		})
	}
}

// The store decides calls of keys for which there is no room. Keys whose leases have ended make room.
func TestKeysWithoutRoomAreDecidedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newStore(t, memstore.New(nil)), nil, sash.PerMinute(100_000))
		for i := range 24_000 {
			admitted(t, l, fmt.Sprint(i))
		}
		leased := func() (n int) {
			for range 300 {
				if admitted(t, l, "k").Source == driver.FromLease {
					n++
				}
			}
			return n
		}
		if n := leased(); n > 0 {
			t.Errorf("%d of 300 were decided by a lease, and there is no room for one", n)
		}
		time.Sleep(time.Minute)
		if n := leased(); n < 200 {
			t.Errorf("%d of 300 were decided by a lease when there was room again", n)
		}
		if res, err := l.Reward(t.Context(), "k", 100); err != nil || res.Charged != 100 {
			t.Errorf("%+v, %v", res, err)
		}
		time.Sleep(time.Second)
	})
}

// admit makes calls of the key k that are all admitted. Some hundred make it busy.
func admit(t *testing.T, l *sash.Limiter, calls int) {
	t.Helper()
	for range calls {
		admitted(t, l, "k")
	}
}

// admitted makes a call that has to be admitted.
func admitted(t *testing.T, l *sash.Limiter, key string) sash.Result {
	t.Helper()
	res, err := l.Allow(t.Context(), key)
	if err != nil || !res.Allowed {
		t.Fatalf("%+v, %v", res, err)
	}
	return res
}

func TestWrongLeasesAreRefused(t *testing.T) {
	for _, d := range []time.Duration{0, -1, time.Microsecond, time.Hour, time.Second + 1} {
		if _, err := lease.New(memstore.New(nil), d); err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

// bubble runs a subtest in a synctest bubble.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// Bookings are counted over the longer windows, however they reach the store: else a unit of a lease could be spent when
// a booking that took its room has started.
func TestBookingsAreUnderTheLongerWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := newStore(t, newFar(hop)), sash.Every(10, time.Second)
		req := driver.Request{Key: "k", Cost: 10, Policy: newLimiter(t, store, nil, limit).Policy(), Within: driver.MaxAhead}
		want := (limit.Window + longest).Microseconds()
		var last int64
		check := func(how string, answer driver.Answer, err error) {
			t.Helper()
			if err != nil || !answer.Allowed() || last > 0 && answer.At-last != want {
				t.Errorf("%s: %d µs after the one before, %+v, %v", how, answer.At-last, answer, err)
			}
			last = answer.At
		}
		calls := drivertest.Of(store)
		answer, err := calls.Decide(t.Context(), req)
		check("first", answer, err)
		if at, err := calls.Extend(t.Context(), driver.Settlement{Request: req, At: last}); err != nil || at <= last {
			t.Errorf("the first, which has started at %d, is extended to %d: %v", last, at, err)
		} else {
			last = at
		}
		answer, err = calls.Decide(t.Context(), req)
		check("alone", answer, err)
		answer, err = calls.Once(t.Context(), "id", req)
		check("with an ID", answer, err)
		look, other := req, req
		look.Cost, other.Cost, other.Key = 0, 0, "other"
		for how, decide := range map[string]func() ([]driver.Answer, error){
			"All": func() ([]driver.Answer, error) { return calls.All(t.Context(), req, other) },
			"Each": func() ([]driver.Answer, error) {
				ops, err := calls.Each(t.Context(), req, look)
				return []driver.Answer{ops[0].Answer}, cmp.Or(err, ops[0].Err)
			},
			"Any": func() ([]driver.Answer, error) {
				_, answer, err := calls.Any(t.Context(), req)
				return []driver.Answer{answer}, err
			},
		} {
			answers := lease.Must(decide())(t)
			check(how, answers[0], nil)
		}
	})
}
