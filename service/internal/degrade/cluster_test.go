package degrade

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// One of three primaries hangs, and no replica takes its place. What the others hold is decided as before; what it held
// is answered by failure mode, within the budget.
func TestOneNodeThatHangsIsNotTheWholeCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{NodeTimeout: time.Minute})
	client := clientOf(t, "redis+cluster://"+cluster.Primaries[1].Addr())
	const budget = 100 * time.Millisecond
	store := client.Detached(nil)
	var logged bytes.Buffer
	g, err := New(store, Options{Budget: budget, Instances: 1, Cluster: client.Cluster(), Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l := limiterOf(t, g.Store, sash.PerHour(90_000))
	policy, err := sash.NewPolicy(nil, sash.PerHour(90_000))
	if err != nil {
		t.Fatal(err)
	}
	// Keys of the node that will hang, and those whose whole part is elsewhere.
	var hanging, healthy []string
	const ends = slots / 3 // where the first of three nodes' slots do
	for i := 0; len(hanging) < 20 || len(healthy) < 40; i++ {
		key := fmt.Sprint("subject", i)
		switch slot := store.Slot(key, policy); {
		case slot < ends && len(hanging) < 20:
			hanging = append(hanging, key)
		case slot*parts/slots > ends*parts/slots && len(healthy) < 40:
			healthy = append(healthy, key)
		}
	}
	decided := func(key string) bool {
		res, err := l.Allow(t.Context(), key)
		return err == nil && res.Source == driver.FromStore
	}
	for _, key := range append(hanging, healthy...) {
		servertest.Wait(t, key+" is not decided", func() bool { return decided(key) })
	}
	cluster.Primaries[0].Pause()
	var asked, answered, late atomic.Int64
	var wg sync.WaitGroup
	for worker := range 24 {
		wg.Go(func() {
			for i := range 150 {
				if n := worker*150 + i; n%3 == 0 {
					began := time.Now()
					if decided(hanging[n/3%len(hanging)]) {
						t.Error("a node that hangs has decided")
					}
					if time.Since(began) > budget+time.Second {
						late.Add(1)
					}
				} else if asked.Add(1); decided(healthy[n%len(healthy)]) {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d calls to nodes that work were decided", answered.Load(), asked.Load())
	if answered.Load() < asked.Load()*95/100 || late.Load() > 0 {
		t.Errorf("%d of %d calls to nodes that work were decided; %d answers were late", answered.Load(), asked.Load(), late.Load())
	}
	if h := g.Health(); h.Status != "degraded" {
		t.Errorf("health: %+v", h)
	}
	if hanging := cluster.Primaries[0].Addr(); !strings.Contains(logged.String(), "Redis is down") || !strings.Contains(logged.String(), hanging+" has not answered") {
		t.Errorf("the log does not name %s:\n%s", hanging, &logged)
	}
	cluster.Primaries[0].Resume()
	for _, key := range hanging {
		servertest.Wait(t, key+" is not decided again", func() bool { return decided(key) })
	}
	servertest.Wait(t, "the store is not up", func() bool { return g.Health().Status == "ok" })
}
