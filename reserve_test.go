package sash_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func reserve(t *testing.T, l *sash.Limiter, key string, estimate int64) *sash.Reservation {
	t.Helper()
	return must(l.Reserve(t.Context(), key, estimate, nil))(t)
}

// step is one call on a reservation.
type step func(context.Context, *sash.Reservation) error

func settle(units int64) step {
	return func(ctx context.Context, r *sash.Reservation) error { return r.Settle(ctx, units) }
}

func cancel(ctx context.Context, r *sash.Reservation) error { return r.Cancel(ctx) }

func cancelOnceGone(ctx context.Context, r *sash.Reservation) error {
	ctx, gone := context.WithCancel(ctx)
	gone()
	return r.Cancel(ctx)
}

func TestTheFirstOfSettleAndCancelDecides(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		used  int64
	}{
		"neither":                      {nil, 20},
		"settled lower":                {[]step{settle(5)}, 5},
		"settled higher":               {[]step{settle(45)}, 45},
		"settled to nothing":           {[]step{settle(0)}, 0},
		"cancelled":                    {[]step{cancel}, 0},
		"cancelled by one who is gone": {[]step{cancelOnceGone}, 0},
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
				check(t, step(t.Context(), r))
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
		report(t, err)
	}
	if left := remaining(t, l, "k"); left != 2 {
		t.Errorf("%d left, want 2", left)
	}
}

var errLost = errors.New("the answer was lost")

func TestSettlingIsAppliedOnceAlthoughAnswersAreLost(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, actual := range []int64{0, 7, 31} {
			inner, lost := memstore.New(nil), 0
			l := newLimiter(t, drivertest.Over(inner, func(ctx context.Context, b *driver.Batch) error {
				if b.Ops[0].Kind != driver.Settle || lost == 2 {
					return inner.Do(ctx, b)
				}
				if lost++; !before {
					check(t, inner.Do(ctx, b))
				}
				return errLost
			}), nil, sash.PerHour(100))
			reserve(t, l, "k", 20)
			r := reserve(t, l, "k", 20)
			for range 2 {
				if err := r.Settle(t.Context(), actual); !errors.Is(err, sash.ErrUnavailable) || !errors.Is(err, errLost) {
					t.Fatalf("the error is %v", err)
				}
			}
			// The deferred Cancel after a Settle that failed repeats it: the units were used.
			check(t, r.Cancel(t.Context()))
			if left := remaining(t, l, "k"); left != 80-actual {
				t.Errorf("lost before %v, worth %d: %d of 100 are left, want %d", before, actual, left, 80-actual)
			}
		}
	}
}

func TestASettlementThatCannotBeChangesNothing(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
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

func TestEverySubjectIsSettledByItself(t *testing.T) {
	eachWay(t, func(t *testing.T, store driver.Store) {
		l := newLimiter(t, store, nil, sash.PerHour(10))
		wide := newLimiter(t, store, nil, sash.PerHour(100))
		for name, c := range map[string]struct {
			client, all step  // nil is never settled
			left        int64 // of the client's 10
			leftOfAll   int64 // of 100
		}{
			"neither":           {nil, nil, 7, 60},
			"the first lower":   {settle(1), nil, 9, 60},
			"the second higher": {nil, settle(70), 7, 30},
			"one given back":    {cancel, nil, 10, 60},
			"the other":         {nil, cancel, 7, 100},
			"both":              {cancel, cancel, 10, 100},
		} {
			client, all := sash.Subject{Key: name, Cost: 3}, sash.Subject{Key: name + ", all", Cost: 40, Limits: wide.Limits()}
			res, reserved, err := reserveAll(t.Context(), l, 0, client, all)
			if err != nil || !res.Allowed || reserved[0].Result().Remaining != 7 || reserved[1].Result().Remaining != 60 {
				t.Fatalf("%+v, %v: each subject has its own answer, of 10 and of 100", res, err)
			}
			for i, step := range []step{c.client, c.all} {
				for range 2 { // once, however often
					if step == nil {
						continue
					}
					check(t, step(t.Context(), reserved[i]))
				}
			}
			if one, both := remaining(t, l, client.Key), remaining(t, wide, all.Key); one != c.left || both != c.leftOfAll {
				t.Errorf("%s: %d of 10 and %d of 100 are left, want %d and %d", name, one, both, c.left, c.leftOfAll)
			}
		}
	})
}

func TestARefusalBesideReservationsIsNotFirm(t *testing.T) {
	store := memstore.New(nil)
	l := newLimiter(t, store, nil, sash.PerMinute(1))
	if _, rs, err := reserveAll(t.Context(), l, 0, two("a", 1)...); err != nil || rs == nil {
		t.Fatal(rs, err)
	}
	must(l.Allow(t.Context(), "c"))(t)
	for key, firm := range map[string]bool{"a": false, "a'": false, "c": true} {
		answer, err := driver.Decide(t.Context(), store, driver.Request{Key: key, Cost: 1, Policy: l.Policy()})
		if err != nil || answer.Allowed() || answer.Firm != firm {
			t.Errorf("%s: %+v, %v", key, answer, err)
		}
	}
}

// Three settlements take as long as one, and can be repeated together when the store fails.
func TestSubjectsAreSettledInOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(newFarStore())
		l := newLimiter(t, store, nil, sash.PerHour(100))
		two := []sash.Subject{{Key: "b", Cost: 10}, {Key: "c", Cost: 10}}
		r := must(l.Reserve(t.Context(), "a", 10, &sash.ReserveOptions{All: two}))(t)
		if err := r.Settle(t.Context(), 1, 2); !errors.Is(err, sash.ErrInvalidCost) {
			t.Errorf("2 numbers for 3 reservations: %v", err)
		}
		store.Fail(errors.New("connection refused"))
		if err := r.Settle(t.Context(), 1, 2, 30); !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("the store is down: %v", err)
		}
		store.Fail(nil)
		began := time.Now()
		report(t, r.Settle(t.Context(), 1, 2, 30))
		if took := time.Since(began); took != roundTrip {
			t.Errorf("three settlements took %v, one takes %v", took, roundTrip)
		}
		for key, used := range map[string]int64{"a": 1, "b": 2, "c": 30} {
			if left := remaining(t, l, key); left != 100-used {
				t.Errorf("%s has %d left, want %d", key, left, 100-used)
			}
		}
	})
}

// When the queue of bookings is full the rest ask in turn, and each is booked once there is room. A place that is free belongs to the
// first of them, also before it has asked again; and it asks soon.
func TestNobodyOvertakesThoseWhoWaitForAPlaceInTheQueue(t *testing.T) {
	defer func(most int) { threshold.Log.Ahead = most }(threshold.Log.Ahead)
	threshold.Log.Ahead = 10
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		l := newLimiter(t, store, nil, sash.Every(1, time.Second))
		w := newWaiters(l)
		began := time.Now()
		for i := range 95 {
			w.call(t.Context(), i, 1)
		}
		for i := range 5 {
			time.Sleep(time.Second + time.Millisecond) // a place is free
			w.call(t.Context(), 95+i, 1)
		}
		time.Sleep(time.Second / 4)
		if r, err := l.Reserve(t.Context(), "k", 1, &sash.ReserveOptions{WaitUpTo: time.Hour}); err != nil || r.Allowed() {
			t.Errorf("the queue is not full, though callers wait for a place: %+v, %v", r.Result(), err)
		}
		w.group.Wait()
		if !slices.IsSorted(w.order) || len(w.order) != 100 {
			t.Errorf("admitted in the order %v; errors %v", w.order, w.errs)
		}
		if took := time.Since(began).Round(time.Millisecond); took != 99*time.Second {
			t.Errorf("100 at 1 per second took %v", took)
		}
		if d := store.decisions.Load(); d > 900 {
			t.Errorf("%d decisions for 100 admissions", d)
		}
	})
}

// A caller in line behind a full queue learns when its turn would be, not when the first of the line asks again.
func TestADeadlineBehindAFullQueueOfBookings(t *testing.T) {
	defer func(most int) { threshold.Log.Ahead = most }(threshold.Log.Ahead)
	threshold.Log.Ahead = 10
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(newLimiter(t, newBookStore(), nil, sash.Every(1, time.Second)))
		for i := range 12 { // one now, ten in the queue, and the first in line
			w.call(t.Context(), i, 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		w.call(ctx, 12, 1)
		w.group.Wait()
		var limited *sash.LimitedError
		if err := w.errs[12]; !errors.As(err, &limited) || limited.Result.RetryAfter != 11*time.Second {
			t.Errorf("the queue is 11s long: %v", err)
		}
	})
}

// A caller who has left when its booking starts now does not start, and holds nothing.
func TestABookingOfACallerWhoHasLeft(t *testing.T) {
	l := newLimiter(t, newBookStore(), nil, sash.PerHour(10))
	r := book(t, l, "k", 10)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := r.Wait(ctx); !errors.Is(err, context.Canceled) || remaining(t, l, "k") != 10 {
		t.Errorf("%v, and %d are left", err, remaining(t, l, "k"))
	}
}
