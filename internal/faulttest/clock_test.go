package faulttest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// The server's clock is set an hour forward and then back again, in the middle of the load.
func TestClockIsMovedByAnHour(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server, clock := redistest.StartWithClock(t)
		// Both windows are shorter than the jump: going forward, all charges leave.
		limits := []sash.Limit{sash.Every(60, 50*time.Millisecond), sash.Every(900, 20*time.Minute)}
		l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		more(t, "admissions before the jump", &load.admitted, 200)
		clock.Move(t, time.Hour)
		forward := time.Now()
		more(t, "admissions after the jump", &load.admitted, 200)
		await(t, "the limit is reached again", func() bool { return used(t, l, subject) == limits[1].Units })
		clock.Move(t, 0)
		more(t, "refusals after the jump back", &load.refused, 300)
		all := load.stop()

		ahead := all.admitted().after(forward.Add(30 * time.Minute))
		here := all.admitted().before(forward.Add(30 * time.Minute))
		if here.after(forward).units() != 0 {
			t.Errorf("%d units were admitted after the clock went back", here.after(forward).units())
		}
		here.keepsTo(t, 1, limits...)
		ahead.keepsTo(t, 1, limits...)
		all.refused().waitsAtMost(t, limits[1].Window)
		// Seen by the callers' clock, which did not jump.
		steady := append(history(nil), here...)
		for _, c := range ahead {
			c.At = c.At.Add(-time.Hour)
			steady = append(steady, c)
		}
		steady.keepsTo(t, 2, limits...)
		all.log(t, "%d units before the jump, %d after it, %d after the way back", here.units(), ahead.units(), here.after(forward).units())
	})
}

// waitsAtMost reports refusals with a longer RetryAfter.
func (h history) waitsAtMost(t testing.TB, longest time.Duration) {
	t.Helper()
	for _, c := range h {
		if c.RetryAfter > longest {
			t.Errorf("the RetryAfter of a refusal is %v, longer than the window of %v", c.RetryAfter, longest)
			return
		}
	}
}
