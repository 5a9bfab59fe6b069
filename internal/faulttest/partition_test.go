package faulttest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// One of two processes is cut off from Redis, and the other one is not. Redis admits the whole limit to the other, and
// the one that is cut off admits its share besides.
func TestOneProcessIsCutOff(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		const units = 40
		server := redistest.Start(t)
		proxy := through(t, server.Addr())
		local := func(addr string, budget time.Duration) *sash.Limiter {
			store, err := failover.New(a.open(t, to(addr, 0)), &failover.Options{
				Modes:     failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
				Budget:    budget,
				Local:     memstore.New(nil),
				Instances: func() int { return processes },
				Classify:  failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
			})
			if err != nil {
				t.Fatal(err)
			}
			return limiter(t, store, sash.PerHour(units))
		}
		whole, cutOff := local(server.Addr(), time.Minute), local(proxy.Listen, 0) // a busy machine is no fault of Redis
		for _, l := range []*sash.Limiter{whole, cutOff} {
			await(t, "Redis decides", func() bool {
				res, err := l.Peek(t.Context(), subject)
				return err == nil && res.Source == sash.FromStore
			})
		}
		proxy.Stop()
		admitted := map[sash.Source]int{}
		for range 2 * units {
			for _, l := range []*sash.Limiter{whole, cutOff} {
				res, err := l.Allow(t.Context(), subject)
				if err != nil {
					t.Fatal(err)
				}
				if res.Allowed {
					admitted[res.Source]++
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
		if admitted[sash.FromStore] != units || admitted[sash.FromLocal] != units/processes {
			t.Errorf("admitted %v, want %d from the store and %d locally", admitted, units, units/processes)
		}
		proxy.heal(t)
		await(t, "Redis decides for both again", func() bool {
			res, err := cutOff.Allow(t.Context(), subject)
			return err == nil && res.Source == sash.FromStore && !res.Allowed
		})
		t.Logf("%d of %d were admitted", admitted[sash.FromStore]+admitted[sash.FromLocal], units)
	})
}
