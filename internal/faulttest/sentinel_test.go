package faulttest

import (
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// Sentinels replace a primary that was killed under load. The clients find the new one by themselves.
func TestSentinelsFailOver(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		replicas := []*redistest.Server{redistest.StartReplica(t, primary.Addr()), redistest.StartReplica(t, primary.Addr())}
		const down = time.Second
		sentinels := redistest.StartSentinels(t, primary, len(replicas), down)
		at := target{addrs: sentinels.Addrs(), sentinel: sentinels.Name, patience: hurried}
		l := limiter(t, a.open(t, at), limits...)
		load := startOn(t, l, hurried)
		more(t, "admissions before the fault", &load.admitted, 200)
		primary.Stop()
		killed := time.Now()
		await(t, "a sentinel names another primary", func() bool { return sentinels.Primary(t) != primary.Addr() })
		named := time.Now()
		more(t, "admissions after the fault", &load.admitted, 200)
		await(t, "the limit is reached again", func() bool { return used(t, l, subject) >= long.Units-1 })
		all := load.stop()

		all.failsOver(t, killed, used(t, l, subject))
		all.log(t, "the sentinels took %v to name the new primary, the callers %v to be admitted by it",
			named.Sub(killed).Round(time.Millisecond), all.gap(killed).Round(time.Millisecond))
	})
}

// failsOver checks a history in which one server died with its charges and another took over with some of
// them, which holds a number of units in the end.
func (h history) failsOver(t testing.TB, killed time.Time, used int64) {
	t.Helper()
	before, after := h.before(killed).admitted(), h.after(killed).admitted()
	before.keepsTo(t, 1, limits...)
	after.keepsTo(t, 1, limits...)
	h.keepsTo(t, 2, limits...)
	if used > long.Units || used < after.units() {
		t.Errorf("%d units are charged on the new primary, which admitted %d of %d", used, after.units(), long.Units)
	}
	if extra := h.admitted().units() - long.Units; extra > before.units() {
		t.Errorf("%d units beyond the limit, but only %d could be lost", extra, before.units())
	}
}

// gap returns how long after an instant the first call was admitted.
func (h history) gap(since time.Time) time.Duration {
	first := time.Duration(-1)
	for _, c := range h.admitted() {
		if d := c.At.Sub(since); d >= 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// The primary only hangs: it is replaced, comes back, and for a moment there are two of them. What it
// admits before it learns of the other is lost with it.
func TestPrimaryComesBackAfterItWasReplaced(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		redistest.StartReplica(t, primary.Addr())
		sentinels := redistest.StartSentinels(t, primary, 1, time.Second)
		at := target{addrs: sentinels.Addrs(), sentinel: sentinels.Name, patience: hurried}
		l := limiter(t, a.open(t, at), limits...)
		load := startOn(t, l, hurried)
		// A client that does not ask the sentinels stays with the old primary.
		stray := startOn(t, limiter(t, a.open(t, to(primary.Addr(), hurried)), limits...), hurried)
		more(t, "admissions before the fault", &load.admitted, 100)
		primary.Pause()
		await(t, "a sentinel names another primary", func() bool { return sentinels.Primary(t) != primary.Addr() })
		more(t, "admissions by the new primary", &load.admitted, 50)
		primary.Resume()
		await(t, "the old primary is a replica", func() bool {
			role, err := primary.Do("ROLE") // it ends its connections when it learns
			list, _ := role.([]any)
			return err == nil && len(list) > 0 && list[0] == "slave"
		})
		await(t, "the limit is reached", func() bool { return used(t, l, subject) >= long.Units-1 })
		more(t, "refusals after that", &load.refused, 100)
		all := append(load.stop(), stray.stop()...)

		all.keepsTo(t, 2, limits...)
		all.log(t, "%d units beyond %d; worst %v: %d of %d",
			max(0, all.admitted().units()-long.Units), long.Units, short.Window, all.worst(short.Window), short.Units)
	})
}
