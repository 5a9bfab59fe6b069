package failover_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

func TestFailuresInARowTakeTheStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		var changes []string
		store := guarded(t, inner, failover.Options{OnChange: func(now failover.State, cause error) {
			changes = append(changes, fmt.Sprint(now, " ", errors.Is(cause, errBroken)))
		}})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		inner.becomes(fails(errBroken))
		for i := range 100 {
			_, err := l.Allow(t.Context(), "k")
			if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, errBroken) || errors.Is(err, failover.ErrDown) != (i >= 5) {
				t.Fatalf("call %d: %v", i, err)
			}
			if i < 4 {
				time.Sleep(failover.DefaultBlip / 4)
			}
		}
		if calls, _ := inner.seen(); calls != 5 || store.State() != failover.Down {
			t.Errorf("the store is %v and was asked %d times, want 5", store.State(), calls)
		}
		bringBack(t, inner, store)
		if want := []string{"down true", "probing true", "up false"}; !slices.Equal(changes, want) {
			t.Errorf("changes %v, want %v", changes, want)
		}
	})
}

// The pauses between probes grow up to two seconds, and differ.
func TestProbesBecomeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{}, sash.PerHour(1000))
		bringDown(t, inner, store)
		var pauses []time.Duration
		var last time.Time
		inner.becomes(func(context.Context) error {
			if !last.IsZero() {
				pauses = append(pauses, time.Since(last))
			}
			last = time.Now()
			return errBroken
		})
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
			_, _ = l.Allow(t.Context(), "k")
		}
		late := pauses[5:]
		if len(pauses) < 30 || len(pauses) > 70 || slices.Max(pauses) > 2010*time.Millisecond || slices.Min(pauses) < 50*time.Millisecond {
			t.Errorf("%d pauses between probes: %v", len(pauses), pauses)
		}
		if pauses[0] > 400*time.Millisecond || slices.Max(late) < 1100*time.Millisecond || slices.Max(late) == slices.Min(late) {
			t.Errorf("the pauses do not grow, or are not spread: %v", pauses)
		}
	})
}

func TestFailuresAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		errAuth := errors.New("NOAUTH authentication required")
		reported := make(map[failover.Kind]int)
		store := guarded(t, inner, failover.Options{
			Modes:   always(failover.Open),
			OnError: func(_ error, kind failover.Kind) { reported[kind]++ },
			Classify: func(err error) failover.Kind {
				if errors.Is(err, errAuth) {
					return failover.Misconfigured
				}
				return failover.Unknown
			},
		})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		for _, does := range []func(context.Context) error{fails(errAuth), fails(errRefused), fails(errBroken), stalls} {
			inner.becomes(does)
			if res := allow(t, l, "k", 1); !res.Allowed || res.Source != driver.FromPolicy || !errors.Is(res.Cause, sash.ErrUnavailable) {
				t.Errorf("%+v", res)
			}
		}
		if reported[failover.Misconfigured] != 1 || reported[failover.Unsent] != 1 || reported[failover.Unknown] != 2 {
			t.Errorf("reported: %v", reported)
		}
		inner.becomes(nil)
		allow(t, l, "k", 1)
		if len(reported) != 3 {
			t.Errorf("reported: %v", reported)
		}
	})
}

var errRejected = fmt.Errorf("%w: the key holds a list", driver.ErrRejected)

// A rejecting store rejects every call on subjects whose name begins with "bad".
type rejecting struct{ *fake }

func (s rejecting) Do(ctx context.Context, b *driver.Batch) error {
	if strings.HasPrefix(b.Ops[0].Key, "bad") && b.Ops[0].Kind == driver.Charge {
		return cmp.Or(s.enter(ctx), errRejected)
	}
	return s.fake.Do(ctx, b)
}

// Errors about one subject are answers of the store: they do not take it away from other subjects, and no failure mode answers instead.
func TestARejectedCallIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := map[failover.Kind]int{}
		store := guarded(t, rejecting{newFake()}, failover.Options{
			Modes:   always(failover.Open),
			OnError: func(_ error, kind failover.Kind) { reported[kind]++ },
		})
		l := newLimiter(t, store, nil, sash.PerHour(1000))
		for i := range 100 {
			for range 10 { // in a row
				_, err := l.Allow(t.Context(), "bad")
				if !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, driver.ErrRejected) {
					t.Fatalf("a rejected call is answered with %v", err)
				}
			}
			if res, err := l.Allow(t.Context(), "good"); err != nil || res.Source != driver.FromStore {
				t.Fatalf("call %d on another subject: %+v, %v", i, res, err)
			}
		}
		if store.State() != failover.Up || reported[failover.Rejected] != 1000 || len(reported) != 1 {
			t.Errorf("the store is %v, and OnError got %v", store.State(), reported)
		}
	})
}

// Subjects whose writing is rejected are lost, and hold up no other.
func TestARejectedWriteHoldsUpNoOther(t *testing.T) {
	for _, good := range []int{0, 30} {
		synctest.Test(t, func(t *testing.T) {
			inner := newFake()
			store := guarded(t, rejecting{inner}, failover.Options{Modes: always(failover.Local)})
			l := newLimiter(t, store, nil, sash.PerHour(40))
			inner.becomes(fails(errRefused))
			for i := range 30 {
				allow(t, l, fmt.Sprint("bad", i), 1)
			}
			for i := range good {
				allow(t, l, fmt.Sprint("good", i), 2)
			}
			inner.becomes(nil)
			time.Sleep(3 * time.Second)
			if got := store.Stats(); got != (failover.Stats{Written: 2 * int64(good), Lost: 30}) || store.State() != failover.Up {
				t.Errorf("the store is %v; %+v", store.State(), got)
			}
		})
	}
}
