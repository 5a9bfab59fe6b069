package memstore_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

func newStore(t *testing.T, maxKeys int64) (*memstore.Store, *judge.Clock) {
	clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	return memstore.New(&memstore.Options{MaxBytes: maxKeys * memstore.KeyBytes, Now: clock.Now}), clock
}

func newLimiter(t testing.TB, store driver.Store, a sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Millisecond
	}
	return memstore.Must(sash.New(store, opts, limits...))(t)
}

func allow(t *testing.T, l *sash.Limiter, key string) sash.Result {
	t.Helper()
	return memstore.Must(l.Allow(t.Context(), key))(t)
}

func TestKeysGoWhenNothingTheyWereChargedCounts(t *testing.T) {
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			store, clock := newStore(t, 0)
			l := newLimiter(t, store, a, sash.Every(5, 10*time.Second), sash.Every(8, 30*time.Second))
			for i := range 1000 {
				allow(t, l, fmt.Sprint(i))
			}
			if got := store.Swept(); got != (memstore.Stats{Keys: 1000, Bytes: 1000 * memstore.KeyBytes, MaxBytes: memstore.DefaultMaxBytes}) {
				t.Errorf("after 1000 keys: %+v", got)
			}
			clock.Advance(60*time.Second + time.Millisecond)
			if got := store.Swept(); got != (memstore.Stats{MaxBytes: memstore.DefaultMaxBytes}) {
				t.Errorf("two windows later: %+v", got)
			}
		})
	}
}

// 10,000 keys are in their window at a time, and new ones drop those that are not.
func TestChargesSweepWithoutBeingAsked(t *testing.T) {
	store, clock := newStore(t, 0)
	l := newLimiter(t, store, sash.SlidingLog, sash.Every(5, time.Second))
	for i := range 50_000 {
		allow(t, l, fmt.Sprint(i))
		clock.Advance(100 * time.Microsecond)
	}
	if keys := store.Stats().Keys; keys > 12_000 {
		t.Errorf("%d keys are held", keys)
	}
}

func TestPeeksAndRefusalsOfUnknownKeysTakeNoRoom(t *testing.T) {
	store, _ := newStore(t, 0)
	l := newLimiter(t, store, sash.SlidingLog, sash.Every(5, time.Second))
	for i := range 100 {
		_ = memstore.Must(l.Peek(t.Context(), fmt.Sprint(i)))(t)
	}
	full := newLimiter(t, store, sash.SlidingLog, sash.Every(1, time.Second))
	allow(t, full, "full")
	for i := range 100 {
		res, err := full.AllowAll(t.Context(), sash.Subject{Key: fmt.Sprint("with ", i), Cost: 1}, sash.Subject{Key: "full", Cost: 1})
		if err != nil || res.Allowed {
			t.Fatal(res.Allowed, err)
		}
	}
	if got := store.Swept().Keys; got != 1 {
		t.Errorf("%d keys, want the one that was charged", got)
	}
}

func newPolicy(t testing.TB, opts *sash.Options, limits ...sash.Limit) *driver.Policy {
	t.Helper()
	return memstore.Must(sash.NewPolicy(opts, limits...))(t)
}

func TestCoolDownsCountAsKeysAndExpire(t *testing.T) {
	const most = 1000
	bytes := memstore.KeyBytes + memstore.CoolDownBytes
	now := time.UnixMicro(1_700_000_000_000_000)
	store := memstore.New(&memstore.Options{MaxBytes: most * bytes, Now: func() time.Time { return now }})
	for i := range 5 * most {
		c := driver.CoolDown{Length: time.Minute.Microseconds()}
		if _, err := drivertest.Of(store).Cool(t.Context(), strconv.Itoa(i), c); err != nil && !errors.Is(err, memstore.ErrFull) {
			t.Fatal(err)
		}
		_ = memstore.Must(drivertest.Of(store).Cool(t.Context(), "looked for"+strconv.Itoa(i), driver.CoolDown{}))(t)
	}
	if stats := store.Swept(); stats.Keys < most*98/100 || stats.Keys > most*102/100 || stats.Evicted != 0 || stats.TurnedAway == 0 {
		t.Errorf("%+v", stats)
	}
	now = now.Add(2 * time.Minute)
	if keys := store.Swept().Keys; keys != 0 {
		t.Errorf("%d cool-downs are kept for longer than they lasted", keys)
	}
}
