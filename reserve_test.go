package sash_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func reserve(t *testing.T, l *sash.Limiter, key string, estimate int64) *sash.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), key, estimate)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// step is one call on a reservation.
type step func(context.Context, *sash.Reservation) error

func settle(units int64) step {
	return func(ctx context.Context, r *sash.Reservation) error { return r.Settle(ctx, units) }
}

func cancel(ctx context.Context, r *sash.Reservation) error { return r.Cancel(ctx) }

func TestTheFirstOfSettleAndCancelDecides(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		used  int64
	}{
		"neither":                      {nil, 20},
		"settled lower":                {[]step{settle(5)}, 5},
		"settled at once":              {[]step{settle(20)}, 20},
		"settled higher":               {[]step{settle(45)}, 45},
		"settled to nothing":           {[]step{settle(0)}, 0},
		"cancelled":                    {[]step{cancel}, 0},
		"settled twice":                {[]step{settle(5), settle(5)}, 5},
		"settled differently":          {[]step{settle(5), settle(90)}, 5},
		"settled and cancelled":        {[]step{settle(5), cancel, cancel}, 5},
		"as estimated, then cancelled": {[]step{settle(20), cancel}, 20},
		"cancelled and settled":        {[]step{cancel, settle(5)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(100))
			r := reserve(t, l, "k", 20)
			for _, step := range c.steps {
				if err := step(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if left := remaining(t, l, "k"); left != 100-c.used {
				t.Errorf("%d of 100 are left, want %d", left, 100-c.used)
			}
		})
	}
}

func TestARefusedReservationHasNothingToSettle(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
	reserve(t, l, "k", 8)
	r := reserve(t, l, "k", 3)
	if r.Allowed() || r.Result().RetryAfter <= 0 || r.Result().Remaining != 2 {
		t.Fatalf("3 units where 2 are left: %+v", r.Result())
	}
	for _, err := range []error{r.Settle(t.Context(), 0), r.Settle(t.Context(), 9), r.Cancel(t.Context())} {
		if err != nil {
			t.Error(err)
		}
	}
	if left := remaining(t, l, "k"); left != 2 {
		t.Errorf("%d left, want 2", left)
	}
}

// forgetful is a store whose first answers to Settle are lost: after it did what was asked, or before.
type forgetful struct {
	*memstore.Store
	lost   int
	before bool
}

var errLost = errors.New("the answer was lost")

func (s *forgetful) Settle(ctx context.Context, set driver.Settlement) error {
	if s.lost == 0 {
		return s.Store.Settle(ctx, set)
	}
	s.lost--
	if !s.before {
		if err := s.Store.Settle(ctx, set); err != nil {
			return err
		}
	}
	return errLost
}

func TestSettlingIsAppliedOnceAlthoughAnswersAreLost(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, actual := range []int64{0, 7, 31} {
			l := newLimiter(t, &forgetful{memstore.New(nil), 2, before}, nil, sash.PerHour(100))
			reserve(t, l, "k", 20)
			r := reserve(t, l, "k", 20)
			for range 2 {
				if err := r.Settle(t.Context(), actual); !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, errLost) {
					t.Fatalf("the error is %v", err)
				}
			}
			// The deferred Cancel after a Settle that failed repeats it: the units were used.
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := remaining(t, l, "k"); left != 80-actual {
				t.Errorf("lost before %v, worth %d: %d of 100 are left, want %d", before, actual, left, 80-actual)
			}
		}
	}
}

func TestSettledWhenTheCallerIsGone(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(100))
	ctx, gone := context.WithCancel(t.Context())
	r := reserve(t, l, "k", 20)
	gone()
	if err := r.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	if left := remaining(t, l, "k"); left != 100 {
		t.Errorf("%d of 100 are left", left)
	}
}

func TestReserveRefusesWhatItCannotDo(t *testing.T) {
	plain := newLimiter(t, panicStore{}, nil, sash.PerHour(10))
	if _, err := plain.Reserve(t.Context(), "k", 1); !errors.Is(err, sash.ErrUnsupported) {
		t.Errorf("a store that cannot settle: %v", err)
	}
	countRefused := &sash.Options{CountRefused: true}
	counting := newLimiter(t, memstore.New(nil), countRefused, sash.PerHour(10))
	_, one := counting.Reserve(t.Context(), "k", 1)
	_, _, all := counting.ReserveAll(t.Context(), sash.Subject{Key: "k", Cost: 1})
	_, atOnce := sash.NewConcurrency(memstore.New(nil), countRefused, 1, time.Minute)
	for _, err := range []error{one, all, atOnce} {
		if !errors.Is(err, sash.ErrUnsupported) || !strings.Contains(err.Error(), "CountRefused") || strings.Contains(err.Error(), "this store") {
			t.Errorf("the error of a limiter that charges refused calls blames something else: %v", err)
		}
	}
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
	if _, err := l.Reserve(t.Context(), "k", 11); !errors.Is(err, sash.ErrCostAboveLimit) {
		t.Errorf("an estimate above the limit: %v", err)
	}
	if _, err := l.Reserve(t.Context(), "", 1); !errors.Is(err, sash.ErrInvalidKey) {
		t.Errorf("no key: %v", err)
	}
	r := reserve(t, l, "k", 5)
	for _, units := range []int64{-1, sash.MaxUnits + 1} {
		if err := r.Settle(t.Context(), units); !errors.Is(err, sash.ErrInvalidCost) {
			t.Errorf("worth %d: %v", units, err)
		}
	}
	if err := r.Settle(t.Context(), 1); err != nil || remaining(t, l, "k") != 9 {
		t.Errorf("after a settlement that was wrong: %v, %d left", err, remaining(t, l, "k"))
	}
}

// Calls to a model whose tokens are known only afterwards: with estimates that are not too low no minute
// ever holds more than the limit, however many calls run at once.
func TestTokensPerMinute(t *testing.T) {
	var mu sync.Mutex
	clock := time.UnixMicro(1_800_000_000_000_000)
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return clock
	}
	l := newLimiter(t, memstore.New(&memstore.Options{Now: now}), nil, sash.PerMinute(100))
	var used, calls int64 // in this minute, guarded by mu
	for minute := range 10 {
		var group sync.WaitGroup
		used, calls = 0, 0
		for worker := range 5 {
			group.Go(func() {
				for n := range 20 {
					r, err := l.Reserve(t.Context(), "model", 20)
					if err != nil {
						t.Error(err)
						return
					}
					if !r.Allowed() {
						continue
					}
					tokens := int64(3 + (minute+7*worker+n)%17) // what the answer took
					mu.Lock()
					used, calls = used+tokens, calls+1
					mu.Unlock()
					if err := r.Settle(t.Context(), tokens); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if used > 100 || calls < 5 {
			t.Errorf("minute %d: %d calls used %d of 100 tokens", minute, calls, used)
		}
		if left := remaining(t, l, "model"); left != 100-used {
			t.Errorf("minute %d: %d left after %d of 100 tokens", minute, left, used)
		}
		mu.Lock()
		clock = clock.Add(time.Minute)
		mu.Unlock()
	}
}

// A limit of n with a window of the longest hold time bounds how many calls are in flight.
func TestCallsInFlight(t *testing.T) {
	clock := time.UnixMicro(1_800_000_000_000_000)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return clock }})
	l := newLimiter(t, store, nil, sash.Every(3, time.Minute))
	var running []*sash.Reservation
	dead := reserve(t, l, "k", 1) // never comes back
	for range 1000 {
		for len(running) < 2 {
			r := reserve(t, l, "k", 1)
			if !r.Allowed() {
				t.Fatalf("%d are in flight, and one more is refused", len(running)+1)
			}
			running = append(running, r)
		}
		if reserve(t, l, "k", 1).Allowed() {
			t.Fatal("a fourth is in flight")
		}
		clock = clock.Add(50 * time.Millisecond)
		if err := running[0].Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		running = running[1:]
	}
	clock = dead.Result().At.Add(time.Minute)
	if left := remaining(t, l, "k"); left != 2 {
		t.Errorf("%d are free when the hold time of the dead one is over and one is running, want 2", left)
	}
	if err := dead.Cancel(t.Context()); err != nil || remaining(t, l, "k") != 2 {
		t.Errorf("the dead one came back: %v, %d are free", err, remaining(t, l, "k"))
	}
}
