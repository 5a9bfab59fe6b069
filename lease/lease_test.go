package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
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

// The store decides calls of keys for which there is no room. Keys whose leases have ended make room.
func TestKeysWithoutRoomAreDecidedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newStore(t, memstore.New(nil)), nil, sash.PerMinute(100_000))
		for i := range 24_000 {
			if res, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		leased := func() (n int) {
			for range 300 {
				if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
					t.Fatalf("%+v, %v", res, err)
				} else if res.Source == driver.FromLease {
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

// bubble runs a subtest in a synctest bubble.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
