package faulttest

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"example.com/sash"
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
// meanwhile: from 4,385 entries on the ring has room for all units of the limit, which is more than 100,000 bytes. Some
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
			r, err := l.Reserve(t.Context(), key, 3)
			if err != nil {
				t.Fatalf("reservation %d on subject %d: %v", n, i, err)
			}
			if err := r.Settle(t.Context(), int64(n%2)); err != nil {
				t.Fatalf("settlement %d on subject %d: %v", n, i, err)
			}
			used[i] += int64(n % 2)
			if i == 2 && n == 0 {
				if err := l.Reset(t.Context(), key); err != nil {
					t.Fatal(err)
				}
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
	policy, err := sash.NewPolicy(nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return store.Key(key, policy)
}

// moveSlot moves a slot and its keys from one primary to another, as redis-cli does: key by key, while the
// old owner redirects clients for keys that have moved.
func moveSlot(t testing.TB, slot int, from, to *redistest.Server) {
	t.Helper()
	n := strconv.Itoa(slot)
	to.Must(t, "CLUSTER", "SETSLOT", n, "IMPORTING", from.ID(t))
	from.Must(t, "CLUSTER", "SETSLOT", n, "MIGRATING", to.ID(t))
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
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
