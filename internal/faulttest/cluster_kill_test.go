package faulttest

import (
	"context"
	"fmt"
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
	guarded, err := failover.New(store, &failover.Options{
		Modes:    failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
		Parts:    parts,
		Part:     func(key string, policy *driver.Policy) int { return store.Slot(key, policy) * parts / redistest.Slots },
	})
	if err != nil {
		t.Fatal(err)
	}
	return guarded
}
