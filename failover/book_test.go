package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

var perTen = sash.Every(8, 10*time.Second)

// book books a unit and returns the answer.
func book(t *testing.T, store driver.Store, l *sash.Limiter, within time.Duration) driver.Answer {
	t.Helper()
	return failover.Must(driver.Decide(t.Context(), store, booking(l, within)))(t)
}

func booking(l *sash.Limiter, within time.Duration) driver.Request {
	return driver.Request{Key: "k", Cost: 1, Policy: l.Policy(), Within: within.Microseconds(), MaySettle: true}
}

// A local store that does not book decides as of now.
func TestALocalStoreThatDoesNotBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := drivertest.Over(memstore.New(nil), nil)
		local.Without = driver.CanBook
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local), Local: local}, sash.Every(1, time.Second))
		inner.becomes(fails(errRefused))
		for i, want := range []bool{true, false} {
			if answer := book(t, store, l, time.Hour); answer.Allowed() != want || answer.Delay != 0 {
				t.Errorf("booking %d: %+v", i, answer)
			}
		}
	})
}

// Local bookings are written when they start: written at once, those of a long queue would fill the window of all
// processes, and be forgotten when they start.
func TestLocalBookingsAreWrittenWhenTheyStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, inFour, perTen)
		inner.becomes(fails(errRefused))
		start := time.Now()
		for range 6 { // at 0, 10 and 20 s
			book(t, store, l, time.Hour)
		}
		inner.becomes(nil)
		for _, c := range []struct {
			at      time.Duration
			written int64
			used    int64
			backlog int
		}{
			{9 * time.Second, 2, 2, 1},
			{11 * time.Second, 4, 2, 1},
			{19 * time.Second, 4, 2, 1},
			{21 * time.Second, 6, 2, 0},
			{40 * time.Second, 6, 0, 0},
		} {
			time.Sleep(time.Until(start.Add(c.at)))
			stats := store.Stats()
			if used := 8 - remaining(t, inner, perTen); stats.Written != c.written || stats.Backlog != c.backlog || used != c.used {
				t.Errorf("after %v the store counts %d, want %d; %+v", c.at, used, c.used, stats)
			}
		}
		if stats := store.Stats(); stats.Lost+stats.Doubtful != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

// twelveBookings returns a store in mode Local behind which twelve calls are booked: eight start now, and four in ten seconds.
func twelveBookings(t *testing.T) (*fake, *failover.Store, *sash.Limiter) {
	inner, store, l := outage(t, failover.Options{Modes: always(failover.Local)}, perTen)
	for range 12 {
		book(t, store, l, time.Hour)
	}
	return inner, store, l
}

// A store that is closed leaves no timers behind.
func TestCloseForgetsBookingsThatHaveNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := twelveBookings(t)
		failover.Check(t, store.Close(t.Context()))
		book(t, store, l, time.Hour)
		time.Sleep(12 * time.Second)
		inner.becomes(fails(errRefused))
		if n := admit(t, l, "k", 10); n != 8 {
			t.Errorf("%d of 8 are admitted locally; some bookings were mirrored after Close", n)
		}
	})
}

// A booking that the store makes when the failure mode has answered is given back: no caller knows of its place.
func TestABookingThatComesTooLateIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		mode failover.Mode
		want int64 // that the store counts
	}{
		{failover.Closed, 0},
		{failover.Open, 0},
		{failover.Local, 1}, // for the local admission
	} {
		failover.Bubble(t, c.mode.String(), func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(c.mode)}, perTen)
			inner.becomes(hangs(1080 * time.Millisecond))
			for _, decide := range []func() error{
				func() error { _, err := driver.Decide(t.Context(), store, booking(l, time.Hour)); return err },
				func() error {
					_, err := drivertest.Of(store).All(t.Context(), booking(l, time.Hour))
					return err
				},
				func() error {
					_, _, err := drivertest.Of(store).Any(t.Context(), booking(l, time.Hour))
					return err
				},
			} {
				if err := decide(); (err != nil) != (c.mode == failover.Closed) {
					t.Errorf("the error is %v", err)
				}
				inner.becomes(hangs(10 * time.Millisecond))
				time.Sleep(time.Second)
				if used := 8 - remaining(t, inner, perTen); used != c.want {
					t.Errorf("the store counts %d, want %d", used, c.want)
				}
				inner.becomes(nil)
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				inner.becomes(hangs(1080 * time.Millisecond))
			}
		})
	}
}
