package faulttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// The limits of most tests. The short one paces the callers, so that there are admissions, refusals and
// charges that leave before, in and after a fault; the long one counts everything that was ever charged.
var (
	short  = sash.Every(60, 50*time.Millisecond)
	long   = sash.Every(1500, time.Hour)
	limits = []sash.Limit{short, long}
)

// A primary is killed in the middle of the load and starts again without what it held.
func TestKilledServerThatComesBackEmpty(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server, l, load := loaded(t, a, hurried)
		more(t, "admissions before the fault", &load.admitted, 300)
		server.Stop()
		killed := time.Now()
		more(t, "failures while the server is down", &load.failed, 20)
		server.Restart()
		more(t, "admissions after the fault", &load.admitted, 300)
		await(t, "the long limit is reached again", func() bool { return used(t, l, subject) >= long.Units-1 })
		more(t, "refusals after that", &load.refused, 100)
		all := load.stop()

		before, after := all.before(killed), all.after(killed)
		losesStateOnce(t, before, after, all)
		extra, lost := all.admitted().units()-long.Units, before.admitted().units()
		// What failed may be charged too, in either life of the server, and the last unit may be free.
		if unknown := all.failed().units() + 1; extra > lost || extra < lost-unknown {
			t.Errorf("%d units more than the limit, but %d were lost (and up to %d unknown)", extra, lost, unknown)
		}
		all.log(t, "%d units were lost and %d admitted beyond %d", lost, extra, long.Units)
	})
}

// The server forgets its scripts again and again. No caller notices.
func TestScriptsAreFlushed(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server, l, load := loaded(t, a, patient)
		for range 30 {
			more(t, "admissions between two flushes", &load.admitted, 15)
			server.Must(t, "SCRIPT", "FLUSH")
		}
		all := load.stop()

		all.isExact(t, used(t, l, subject), limits...)
		all.log(t, "30 flushes")
	})
}

// The server has no memory left, for a while. Refusals go on, and a call that fails is not charged.
func TestMemoryIsUsedUp(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server, l, load := loaded(t, a, patient)
		for range 3 {
			more(t, "admissions before the fault", &load.admitted, 100)
			server.Must(t, "CONFIG", "SET", "maxmemory", "1")
			more(t, "calls that fail", &load.failed, 50)
			server.Must(t, "CONFIG", "SET", "maxmemory", "0")
		}
		await(t, "the limit is reached", func() bool { return used(t, l, subject) == long.Units })
		failed := load.failed.Load()
		server.Must(t, "CONFIG", "SET", "maxmemory", "1")
		more(t, "refusals without memory", &load.refused, 200)
		if n := load.failed.Load() - failed; n > 0 {
			t.Errorf("%d refusals failed without memory", n)
		}
		all := load.stop()

		for _, c := range all.failed() {
			if !errors.Is(c.err, sash.ErrUnavailable) || !strings.Contains(c.err.Error(), "OOM") {
				t.Fatalf("a call without memory: %v", c.err)
			}
		}
		charges := used(t, l, subject)
		all.isExact(t, charges, limits...)
		all.log(t, "%d units are charged", charges)
	})
}

// The link to the replica is slow, the primary is killed, and the replica takes over without the charges
// that were still on their way. Exactly those are admitted again.
func TestFailoverLosesWhatWasNotReplicated(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		link := through(t, primary.Addr())
		replica := redistest.StartReplica(t, link.Listen)
		l := limiter(t, a.open(t, to(primary.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		more(t, "admissions that are replicated", &load.admitted, 300)
		link.add(t, spoil{"latency", false, map[string]int{"latency": 3_600_000}}, 1)
		await(t, "the limit is reached", func() bool { return used(t, l, subject) == long.Units })
		more(t, "refusals after that", &load.refused, 100)
		primary.Stop() // what is under way now is refused: nothing is charged that was not admitted
		more(t, "failures while there is no primary", &load.failed, 10)
		before := load.stop()

		link.Stop()
		replica.Must(t, "REPLICAOF", "NO", "ONE")
		heir := limiter(t, a.open(t, to(replica.Addr(), patient)), limits...)
		arrived := used(t, heir, subject)
		load = startOn(t, heir, patient)
		await(t, "the limit is reached again", func() bool { return used(t, heir, subject) == long.Units })
		more(t, "refusals after that", &load.refused, 100)
		after := load.stop()

		all := append(append(history(nil), before...), after...)
		lost, extra := long.Units-arrived, all.admitted().units()-long.Units
		if before.admitted().units() != long.Units {
			t.Errorf("the primary admitted %d units, want %d", before.admitted().units(), long.Units)
		}
		if extra != lost || extra > long.Units || lost == 0 {
			t.Errorf("%d charges were lost, and %d units admitted again", lost, extra)
		}
		losesStateOnce(t, before, after, all)
		all.log(t, "%d of %d charges arrived, %d were lost, %d were admitted beyond the limit", arrived, long.Units, lost, extra)
	})
}

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
		for _, c := range all.refused() {
			if c.RetryAfter > limits[1].Window {
				t.Fatalf("the RetryAfter of a refusal is %v, longer than the window of %v", c.RetryAfter, limits[1].Window)
			}
		}
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
