package memstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// Keys that have the same hash are apart: each is answered as if it were alone, whichever of them goes.
func TestKeysWithTheSameHashAreApart(t *testing.T) {
	const hash, keys = 7, 6
	policies := make([]*driver.Policy, 0, 2)
	for _, algorithm := range []sash.Algorithm{sash.SlidingLog, sash.GCRA} {
		policy, err := sash.NewPolicy(&sash.Options{Algorithm: algorithm}, sash.Every(3, time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, policy)
	}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		chained := &New(nil).shards[0]
		alone := make(map[id]*shard)
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC).UnixMicro()
		for range 400 {
			now += random.Int64N(200)
			req := driver.Request{Key: fmt.Sprint(random.IntN(keys)), Cost: random.Int64N(4), Policy: policies[random.IntN(len(policies))]}
			of := id{req.Key, req.Policy.Algorithm, req.Policy.Resolution}
			if alone[of] == nil {
				alone[of] = &New(nil).shards[0]
			}
			if random.IntN(8) == 0 {
				for _, sh := range []*shard{chained, alone[of]} {
					if sub := sh.find(hash, req.Key, req.Policy); sub != nil {
						sh.drop(sub)
					}
				}
			}
			var got, want driver.Answer
			chained.decide(now, hash, &req, &got)
			alone[of].decide(now, hash, &req, &want)
			if got != want {
				t.Fatalf("seed %d, key %s, cost %d: %+v, alone %+v", seed, req.Key, req.Cost, got, want)
			}
		}
		held := 0
		for sub := chained.subjects[hash]; sub != nil; sub = sub.next {
			held++
		}
		if held != chained.held() || int64(held) != chained.store.keys.Load() {
			t.Fatalf("seed %d: %d are chained, %d in the queue, %d counted", seed, held, chained.held(), chained.store.keys.Load())
		}
	}
}

// Swept drops every expired key and returns the counts.
func (s *Store) Swept() Stats {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.sweep(sh.clock.now(), sh.held())
		sh.mu.Unlock()
	}
	return s.Stats()
}
