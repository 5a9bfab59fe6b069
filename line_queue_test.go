package sash_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/internal/threshold"
)

// When the queue of bookings is full the rest stand in line, and each is booked once there is room.
func TestAFullQueueOfBookings(t *testing.T) {
	defer func(most int) { threshold.Log.Ahead = most }(threshold.Log.Ahead)
	threshold.Log.Ahead = 10
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		w := newWaiters(newLimiter(t, store, nil, sash.Every(1, time.Second)))
		const n = 100
		began := time.Now()
		for i := range n {
			w.call(t.Context(), i, 1)
		}
		w.group.Wait()
		if !slices.IsSorted(w.order) || len(w.order) != n {
			t.Errorf("admitted in the order %v; errors %v", w.order, w.errs)
		}
		if took := time.Since(began).Round(time.Millisecond); took != (n-1)*time.Second {
			t.Errorf("%d at 1 per second took %v", n, took)
		}
		if d := store.decisions.Load(); d > 9*n {
			t.Errorf("%d decisions for %d admissions", d, n)
		}
	})
}

// A place that is free belongs to the first in line, also before it has asked again; and it asks soon.
func TestNobodyOvertakesThoseWhoWaitForAPlaceInTheQueue(t *testing.T) {
	defer func(most int) { threshold.Log.Ahead = most }(threshold.Log.Ahead)
	threshold.Log.Ahead = 10
	synctest.Test(t, func(t *testing.T) {
		store := newBookStore()
		l := newLimiter(t, store, nil, sash.Every(1, time.Second))
		w := newWaiters(l)
		for i := range 20 {
			w.call(t.Context(), i, 1)
		}
		for i := range 5 {
			time.Sleep(time.Second + time.Millisecond) // a place is free
			w.call(t.Context(), 20+i, 1)
		}
		time.Sleep(time.Second / 4)
		if r, err := l.Book(t.Context(), "k", 1, time.Hour); err != nil || r.Allowed() {
			t.Errorf("the queue is not full, though callers wait for a place: %+v, %v", r.Result(), err)
		}
		w.group.Wait()
		if !slices.IsSorted(w.order) || len(w.order) != 25 {
			t.Errorf("admitted in the order %v", w.order)
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
