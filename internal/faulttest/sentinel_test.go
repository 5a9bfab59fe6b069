package faulttest

import (
	"slices"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// Sentinels replace a primary that was killed under load. The clients find the new one by themselves.
func TestSentinelsFailOver(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		redistest.StartReplica(t, primary.Addr())
		redistest.StartReplica(t, primary.Addr())
		sentinels := redistest.StartSentinels(t, primary, 2, time.Second)
		store := a.open(t, target{addrs: sentinels.Addrs(), sentinel: sentinels.Name, patience: hurried})
		failOver(t, limiter(t, store, limits...), subject, primary)
	})
}

// A primary of a cluster is killed under load, and its replica takes over.
func TestClusterFailsOver(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		cluster := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1})
		store := a.open(t, target{addrs: cluster.Addrs(), cluster: true, patience: hurried})
		failOver(t, limiter(t, store, limits...), subjectsOn(t, cluster, store, 1, 1)[0], cluster.Primaries[1])
	})
}

// failOver kills a primary under load. Another server takes over with some of its charges.
func failOver(t *testing.T, l *sash.Limiter, key string, primary *redistest.Server) {
	t.Helper()
	load := start(t, l, hurried, func(int, int) string { return key })
	more(t, "admissions before the fault", &load.admitted, 200)
	primary.Stop()
	killed := time.Now()
	more(t, "admissions after the fault", &load.admitted, 200)
	await(t, "the limit is reached again", func() bool { return used(t, l, key) >= long.Units-1 })
	all := load.stop()

	before, after := all.before(killed).admitted(), all.after(killed).admitted()
	before.keepsTo(t, 1, limits...)
	after.keepsTo(t, 1, limits...)
	all.keepsTo(t, 2, limits...)
	if charged := used(t, l, key); charged > long.Units || charged < after.units() {
		t.Errorf("%d units are charged on the new primary, which admitted %d of %d", charged, after.units(), long.Units)
	}
	if extra := all.admitted().units() - long.Units; extra > before.units() {
		t.Errorf("%d units beyond the limit, but only %d could be lost", extra, before.units())
	}
	first := slices.MinFunc(after, func(a, b call) int { return a.At.Compare(b.At) })
	all.log(t, "the callers took %v to be admitted again", first.At.Sub(killed).Round(time.Millisecond))
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
		all.log(t, "%d units beyond %d", max(0, all.admitted().units()-long.Units), long.Units)
	})
}
