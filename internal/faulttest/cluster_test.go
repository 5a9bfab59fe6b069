package faulttest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// Slots are moved from node to node and back while their subjects ask. No caller notices.
func TestSlotsAreMoved(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		cluster := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1, NodeTimeout: 5 * time.Second})
		store := a.open(t, target{addrs: cluster.Addrs(), cluster: true, patience: patient})
		l := limiter(t, store, limits...)
		keys := subjectsOn(t, cluster, store, 0, 4)
		load := start(t, l, patient, func(caller, i int) string { return keys[(caller+i)%len(keys)] })
		for round := range 3 {
			for _, key := range keys {
				slot := cluster.Slot(t, redisKey(t, store, key))
				from, to := cluster.Primaries[round], cluster.Primaries[(round+1)%3]
				more(t, "admissions before a move", &load.admitted, 20)
				moveSlot(t, slot, from, to)
				more(t, "admissions after a move", &load.admitted, 20)
			}
		}
		all := load.stop()

		for _, c := range all.failed() {
			t.Errorf("a call failed while slots moved: %v", c.err)
			break
		}
		for _, key := range keys {
			all.where(func(c call) bool { return c.key == key }).isExact(t, used(t, l, key), limits...)
		}
		all.log(t, "%d slots were moved", 3*len(keys))
		heldOpen(t, cluster, store)
	})
}

// heldOpen makes calls with IDs and settlements while slots are moving, then moves them. One log grows to its full size
// meanwhile: from 4,385 entries on the ring has room for 8,192, which are 98,304 bytes. Some
// subjects are new, so that both nodes say that the other one has the key, and one is reset.
func heldOpen(t *testing.T, cluster *redistest.Cluster, store *redisstore.Store) {
	t.Helper()
	const large, calls = 4_300, 80
	l := limiter(t, store, sash.PerHour(20_000))
	from, to := cluster.Primaries[1], cluster.Primaries[2]
	keys := subjectsOn(t, cluster, store, 1, 3) // one with a large log, one with a small one, and a new one
	used := make([]int64, len(keys))
	charge := func(i int, ask func() (sash.Result, error)) {
		t.Helper()
		used[i]++
		if res, err := ask(); err != nil || !res.Allowed || res.Remaining != 20_000-used[i] {
			t.Fatalf("call %d on subject %d: %d left, %v", used[i], i, res.Remaining, err)
		}
	}
	for n := range large {
		charge(0, func() (sash.Result, error) { return l.Allow(t.Context(), keys[0]) })
		if n == 0 {
			charge(1, func() (sash.Result, error) { return l.Allow(t.Context(), keys[1]) })
		}
	}
	for i, key := range keys {
		slot := fmt.Sprint(cluster.Slot(t, redisKey(t, store, key)))
		to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID(t))
		from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID(t))
		for n := range calls {
			id := fmt.Sprint("call ", n)
			charge(i, func() (sash.Result, error) { return l.AllowOnce(t.Context(), id, key, 1) })
			if res, err := l.AllowOnce(t.Context(), id, key, 1); err != nil || !res.Allowed || res.Remaining != 20_000-used[i] {
				t.Fatalf("call %d on subject %d, repeated: %+v, %v", n, i, res, err)
			}
			charge(i, func() (sash.Result, error) { return l.Allow(t.Context(), key) })
			r, err := l.Reserve(t.Context(), key, 3, nil)
			if err != nil {
				t.Fatalf("reservation %d on subject %d: %v", n, i, err)
			}
			if err := r.Settle(t.Context(), int64(n%2)); err != nil {
				t.Fatalf("settlement %d on subject %d: %v", n, i, err)
			}
			used[i] += int64(n % 2)
			if i == 2 && n == 0 {
				check(t, l.Reset(t.Context(), key))
				used[i] = 0
			}
		}
		moveSlot(t, cluster.Slot(t, redisKey(t, store, key)), from, to)
		if res, err := l.AllowOnce(t.Context(), "call 1", key, 1); err != nil || res.Remaining != 20_000-used[i] {
			t.Errorf("subject %d after its slot was moved: %d of 20,000 are left, want %d (%v)", i, res.Remaining, 20_000-used[i], err)
		}
	}
}

// subjectsOn returns subjects of different slots that live on one of the primaries.
func subjectsOn(t testing.TB, c *redistest.Cluster, store *redisstore.Store, node, n int) []string {
	t.Helper()
	var keys []string
	seen := map[int]bool{}
	for i := 0; len(keys) < n; i++ {
		key := sash.Key(subject, fmt.Sprint(i))
		slot := c.Slot(t, redisKey(t, store, key))
		if c.Home(slot) == node && !seen[slot] {
			keys, seen[slot] = append(keys, key), true
		}
	}
	return keys
}

// redisKey returns where a store keeps a subject.
func redisKey(t testing.TB, store *redisstore.Store, key string) string {
	t.Helper()
	policy := must(sash.NewPolicy(nil, limits...))(t)
	return store.Key(key, policy)
}

// moveSlot moves a slot and its keys from one primary to another, as redis-cli does: key by key, while the
// old owner redirects clients for keys that have moved.
func moveSlot(t testing.TB, slot int, from, to *redistest.Server) {
	t.Helper()
	n := strconv.Itoa(slot)
	to.Must(t, "CLUSTER", "SETSLOT", n, "IMPORTING", from.ID(t))
	from.Must(t, "CLUSTER", "SETSLOT", n, "MIGRATING", to.ID(t))
	host, port, _ := net.SplitHostPort(to.Addr())
	for {
		keys, _ := from.Must(t, "CLUSTER", "GETKEYSINSLOT", n, "10").([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			from.Must(t, "MIGRATE", host, port, key.(string), "0", "5000")
		}
	}
	for _, s := range []*redistest.Server{to, from} { // the new owner first, so that one of them owns it at any time
		s.Must(t, "CLUSTER", "SETSLOT", n, "NODE", to.ID(t))
	}
}

// A primary of a cluster is killed while callers use all nodes through failover, with parts, in a cluster that does not
// require full coverage. The other nodes decide their calls until the replica is promoted, and soon afterwards all are decided.
func TestAClusterLosesAPrimary(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		const lost = 8 // the first subjects are those of the node that is killed
		cluster := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1, NodeTimeout: 2 * time.Second, Args: func(int) []string {
			return []string{"--cluster-require-full-coverage", "no"}
		}})
		store := a.open(t, target{addrs: cluster.Addrs(), cluster: true})
		l := limiter(t, inParts(t, store), sash.Every(100_000, time.Hour))
		var keys []string
		for node := range cluster.Primaries {
			keys = append(keys, subjectsOn(t, cluster, store, node, lost)...)
		}
		decided := func(key string) bool {
			res, err := l.Allow(context.Background(), key)
			return err == nil && res.Source == sash.FromStore
		}
		for _, key := range keys {
			await(t, "every subject is decided", func() bool { return decided(key) })
		}
		var others, othersDecided atomic.Int64 // until the promotion
		var back [lost]atomic.Int64            // when a lost subject was decided again
		var promoted atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var callers sync.WaitGroup
		cluster.Primaries[0].Stop()
		killed := time.Now()
		for caller := range 8 {
			callers.Go(func() {
				for i := caller; ctx.Err() == nil; i++ {
					n := i % len(keys)
					switch ok := decided(keys[n]); {
					case n < lost:
						if ok {
							back[n].CompareAndSwap(0, int64(time.Since(killed)))
						}
					case !promoted.Load():
						others.Add(1)
						if ok {
							othersDecided.Add(1)
						}
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		await(t, "the replica is promoted", func() bool {
			role, ok := cluster.Replicas[0].Must(t, "ROLE").([]any)
			return ok && len(role) > 0 && fmt.Sprint(role[0]) == "master"
		})
		promoted.Store(true)
		promotion := time.Since(killed)
		time.Sleep(min(10, time.Duration(5+*times)) * time.Second)
		stop()
		callers.Wait()
		if n, all := othersDecided.Load(), others.Load(); 10*n < 9*all {
			t.Errorf("%d of %d calls to the other nodes were decided", n, all)
		}
		again := time.Duration(0)
		for i := range back {
			if back[i].Load() == 0 {
				t.Fatalf("subject %d of the lost node is not decided again", i)
			}
			again = max(again, time.Duration(back[i].Load())-promotion)
		}
		if again > 5*time.Second {
			t.Errorf("all calls are decided again %v after the promotion, want 5 s at most", again)
		}
		t.Logf("promoted after %v, all decided %v later", promotion.Round(time.Millisecond), again.Round(time.Millisecond))
	})
}

// inParts puts failover before a store, as README does, with a breaker for each part.
func inParts(t *testing.T, store *redisstore.Store) *failover.Store {
	t.Helper()
	const parts = 64
	return must(failover.New(store, &failover.Options{
		Modes:    failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
		Parts:    parts,
		Part:     func(key string, policy *driver.Policy) int { return store.Slot(key, policy) * parts / redistest.Slots },
	}))(t)
}

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
	losesStateOnce(t, before, after, all)
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
