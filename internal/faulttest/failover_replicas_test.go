package faulttest

import (
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// Too few replicas that confirm are a failure as any other: the policy answers. The calls are charged, and not
// written once more.
func TestFailoverWithoutReplicas(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		primary := redistest.Start(t)
		replica := redistest.StartReplica(t, primary.Addr())
		at := to(primary.Addr(), time.Second)
		at.options = &redisstore.Options{Replicas: 1, ReplicaTimeout: 25 * time.Millisecond}
		store := guard(t, a.open(t, at))
		l := limiter(t, store, shared...)
		load := askInModes(t, l)
		time.Sleep(300 * time.Millisecond)
		replica.Pause()
		began := time.Now()
		await(t, "the breaker opens", func() bool { return store.State() != failover.Up })
		time.Sleep(700 * time.Millisecond)
		replica.Resume()
		ended := time.Now()
		await(t, "the breaker closes", func() bool { return store.State() == failover.Up })
		time.Sleep(300 * time.Millisecond)
		all := load.stop()

		all.followPolicy(t)
		all.stayBounded(t, 1)
		await(t, "what was admitted locally is written", func() bool {
			_, _ = l.Peek(t.Context(), "another")
			return store.Stats().Backlog == 0 && store.Stats().InFlight == 0
		})
		all.areCharged(t, l, store.Stats())
		await(t, "the store answers again what the policy does not", func() bool {
			res, err := l.AllowN(t.Context(), "closed", 25)
			return err == nil && res.Source == driver.FromStore
		})
		times := all.where(func(c call) bool { return c.start.After(began) && c.start.Before(ended) }).times(t, load.late)
		t.Logf("%d answers in the fault: p50 %v, p99 %v, longest %v, goroutines up to %v late; %+v", len(times), part(times, 50), part(times, 99), part(times, 100),
			part(load.late, 100), store.Stats())
	})
}
