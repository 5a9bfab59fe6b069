package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A lease has units, and others have booked: a booking from the lease would overtake them.
func TestABookingIsDecidedByTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFar()
		store := newStore(t, inner)
		l := newLimiter(t, store, nil, sash.PerMinute(100_000))
		warm(t, l)
		leased := 0
		for range 100 {
			answer, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: l.Policy(), Within: driver.MaxAhead})
			if err != nil || !answer.Allowed() || answer.Source != driver.FromStore {
				t.Fatalf("%+v, %v", answer, err)
			}
			if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			} else if res.Source == driver.FromLease {
				leased++
			}
		}
		if leased < 50 {
			t.Errorf("only %d of 100 calls were admitted out of a lease: this test shows nothing", leased)
		}
	})
}

// Bookings are counted over the longer windows, however they reach the store: else a unit of a lease could be spent when
// a booking that took its room has started.
func TestBookingsAreUnderTheLongerWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := newStore(t, newFar()), sash.Every(10, time.Second)
		p, err := sash.NewPolicy(nil, limit)
		if err != nil {
			t.Fatal(err)
		}
		req := driver.Request{Key: "k", Cost: 10, Policy: p, Within: driver.MaxAhead}
		want := (limit.Window + longest).Microseconds()
		var last int64
		check := func(how string, answer driver.Answer, err error) {
			t.Helper()
			if err != nil || !answer.Allowed() || last > 0 && answer.At-last != want {
				t.Errorf("%s: %d µs after the one before, %+v, %v", how, answer.At-last, answer, err)
			}
			last = answer.At
		}
		answer, err := store.Decide(t.Context(), req)
		check("first", answer, err)
		if at, err := store.Extend(t.Context(), driver.Settlement{Request: req, At: last}); err != nil || at <= last {
			t.Errorf("the first, which has started at %d, is extended to %d: %v", last, at, err)
		} else {
			last = at
		}
		answer, err = store.Decide(t.Context(), req)
		check("Decide", answer, err)
		answer, err = store.DecideOnce(t.Context(), "id", req)
		check("DecideOnce", answer, err)
		for how, decide := range map[string]func() ([]driver.Answer, error){
			"DecideAll":  func() ([]driver.Answer, error) { return store.DecideAll(t.Context(), []driver.Request{req}) },
			"DecideEach": func() ([]driver.Answer, error) { return store.DecideEach(t.Context(), []driver.Request{req}) },
			"DecideAny": func() ([]driver.Answer, error) {
				_, answer, err := store.DecideAny(t.Context(), []driver.Request{req})
				return []driver.Answer{answer}, err
			},
		} {
			answers, err := decide()
			if err != nil {
				t.Fatal(err)
			}
			check(how, answers[0], nil)
		}
	})
}
