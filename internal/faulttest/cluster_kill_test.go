package faulttest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A primary of a cluster is killed while callers use all nodes through failover. What is decided until the replica is
// promoted, and how soon afterwards everything is, depends on cluster-require-full-coverage, on parts, and on how often
// the client reads the topology. docs/guarantees.md has the figures; the test asserts those of the setup that it advises.
func TestAClusterLosesAPrimary(t *testing.T) {
	t.Parallel()
	minutely := adapter{"go-redis, reload each minute", func(t testing.TB, at target) *redisstore.Store {
		client := redis.NewClusterClient(goredisstore.Tune(&redis.ClusterOptions{Addrs: at.addrs, ClusterStateReloadInterval: time.Minute}))
		t.Cleanup(func() { client.Close() })
		return goredisstore.New(client, nil)
	}}
	for _, c := range []struct {
		adapter
		coverage string
		parts    bool
	}{
		{adapters[0], "no", true},
		{adapters[1], "no", true},
		{adapters[0], "yes", true},
		{adapters[1], "yes", true},
		{adapters[0], "no", false},
		{adapters[1], "no", false},
		{minutely, "no", true},
		{minutely, "no", false},
	} {
		t.Run(fmt.Sprintf("%s, full coverage %s, parts %v", c.name, c.coverage, c.parts), func(t *testing.T) {
			advised := c.coverage == "no" && c.parts && c.name != minutely.name
			if !advised && *times == 1 {
				t.Skip("it is a figure of docs/guarantees.md: run it with -times 5")
			}
			t.Parallel()
			cluster := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1, NodeTimeout: 2 * time.Second, Args: func(int) []string {
				return []string{"--cluster-require-full-coverage", c.coverage}
			}})
			store := c.open(t, target{addrs: cluster.Addrs(), cluster: true})
			h := lose(t, cluster, partly(t, store, c.parts), store)
			t.Logf("%s: %s", t.Name(), h)
			if advised {
				if h.others.share(0) < 0.9 || h.again == 0 || h.again > 5*time.Second {
					t.Errorf("want 90 %% of the calls to the others, and all calls within 5 s")
				}
			}
		})
	}
}

// partly puts failover before a store, as README does, with a breaker for each part or one for all.
func partly(t *testing.T, store *redisstore.Store, divided bool) *failover.Store {
	t.Helper()
	opts := &failover.Options{
		Modes:    failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}},
		Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
	}
	if divided {
		const parts = 64
		opts.Parts = parts
		opts.Part = func(key string, policy *driver.Policy) int { return store.Slot(key, policy) * parts / redistest.Slots }
	}
	guarded, err := failover.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return guarded
}

// A loss is what callers see of a primary that is killed. The phases are until the promotion, and 6 to 10 s from then on.
type loss struct {
	others, lost shares
	promoted     time.Duration // after the kill
	again        time.Duration // after the promotion: when every lost subject had been decided; 0 is never
}

// shares count calls in each phase, and those that the store decided.
type shares struct{ all, decided [2]atomic.Int64 }

func (s *shares) share(phase int) float64 {
	return float64(s.decided[phase].Load()) / float64(max(1, s.all[phase].Load()))
}

func (h *loss) String() string {
	return fmt.Sprintf("promoted after %.1f s; the other nodes decided %.0f %% of their calls until then, and %.0f %% in the seconds from then on; "+
		"the subjects of the lost node were decided again after %.1f s, and %.0f %% of their calls in those seconds",
		h.promoted.Seconds(), 100*h.others.share(0), 100*h.others.share(1), h.again.Seconds(), 100*h.lost.share(1))
}

func lose(t *testing.T, cluster *redistest.Cluster, guarded *failover.Store, store *redisstore.Store) *loss {
	t.Helper()
	after := min(10, time.Duration(5+*times)) * time.Second
	const lost = 8 // the first subjects are those of the node that is killed
	l := limiter(t, guarded, sash.Every(100_000, time.Hour))
	keys := subjectsOn(t, cluster, store, 0, lost)
	for _, node := range []int{1, 2} {
		keys = append(keys, subjectsOn(t, cluster, store, node, 8)...)
	}
	for _, key := range keys {
		await(t, "every subject is decided", func() bool {
			res, err := l.Allow(t.Context(), key)
			return err == nil && res.Source == sash.FromStore
		})
	}
	h := &loss{}
	var phase atomic.Int64
	var back [lost]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	cluster.Primaries[0].Stop()
	killed := time.Now()
	for caller := range 8 {
		callers.Go(func() {
			for i := caller; ctx.Err() == nil; i++ {
				now, count := phase.Load(), &h.others
				key := keys[i%len(keys)]
				if i%len(keys) < lost {
					count = &h.lost
				}
				res, err := l.Allow(context.Background(), key)
				count.all[now].Add(1)
				if err == nil && res.Source == sash.FromStore {
					count.decided[now].Add(1)
					if n := i % len(keys); n < lost {
						back[n].CompareAndSwap(0, int64(time.Since(killed)))
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
	h.promoted = time.Since(killed)
	phase.Store(1)
	time.Sleep(after)
	stop()
	callers.Wait()
	for i := range back {
		at := time.Duration(back[i].Load())
		if at == 0 {
			h.again = 0
			break
		}
		h.again = max(h.again, at-h.promoted, time.Millisecond)
	}
	return h
}
