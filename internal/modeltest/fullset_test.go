package modeltest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

// The thresholds of a sorted set, small enough to be met.
var (
	smallSet  = threshold.Scripts.But(threshold.Table{"MOST_ENTRIES": 8})
	smallSums = threshold.Scripts.But(threshold.Table{"SET_MODULUS": 1 << 9, "SET_MOST_SUM": 1 << 7, "MOST_OF_ENTRY": mostOfSmall})
)

const mostOfSmall = 1<<6 - 1

// A sorted set that is full, or whose sums would exceed their modulus, admits nothing beyond a limit, under limits that
// change from call to call; and everything is free again one window after the last charge.
func TestASmallSortedSetNeverAdmitsTooMuch(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range []struct {
		name   string
		small  threshold.Table
		settle func(r *rand.Rand, units int64) int64
	}{
		{"few members", smallSet, func(r *rand.Rand, units int64) int64 { return r.Int64N(2) * r.Int64N(units+2) }},
		{"small sums", smallSums, func(_ *rand.Rand, units int64) int64 { return mostOfSmall }},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, _, scripts := virtual(t, server.Addr(), nil)
			scripts.thresholds = c.small
			for seed := range uint64(60) {
				walkSmallSet(t, store, scripts, fmt.Sprint(c.name, seed), rand.New(rand.NewPCG(seed, 5)), c.settle)
			}
		})
	}
}

func walkSmallSet(
	t *testing.T, store *redisstore.Store, scripts *scripter, key string, r *rand.Rand,
	becomes func(r *rand.Rand, units int64) int64,
) {
	t.Helper()
	limits := []sash.Limit{sash.Every(20, 10*time.Millisecond), sash.Every(40, 50*time.Millisecond), sash.Every(60, 400*time.Millisecond)}
	var policies []*driver.Policy
	for _, limit := range limits {
		policy, err := sash.NewPolicy(&sash.Options{Algorithm: sash.SortedSetLog}, limit)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, policy)
	}
	var charges []driver.Settlement // with the units that they are charged for now
	decide := func(req driver.Request) driver.Answer {
		answer, err := store.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for step := range 200 {
		scripts.clock.Advance(time.Duration(r.IntN(2)*r.IntN(8000)) * time.Microsecond)
		if i := len(charges) - 1 - r.IntN(12); r.IntN(3) == 0 && i >= 0 && charges[i].ID == "" {
			set := charges[i]
			set.Units, set.ID = becomes(r, set.Units), fmt.Sprint(key, step)
			if err := store.Settle(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			if scripts.clock.Now().UnixMicro() < set.Expires() {
				charges[i] = set
			}
		}
		i := r.IntN(len(limits))
		if step == 0 {
			i = 2 // charges are kept for the longest window of any call so far
		}
		req := driver.Request{Key: key, Cost: 1 + r.Int64N(6), Policy: policies[i], MaySettle: true}
		answer := decide(req)
		if !answer.Allowed() {
			if wait := answer.Retry(); wait <= 0 || wait > limits[i].Window.Microseconds() {
				t.Fatalf("%s, step %d: a refusal says to wait for %d µs", key, step, wait)
			}
			continue
		}
		used := req.Cost
		for _, c := range charges {
			if c.At > answer.At-limits[i].Window.Microseconds() {
				used += c.Units
			}
		}
		if used > limits[i].Units {
			t.Fatalf("%s, step %d: %d of %d are admitted in %v", key, step, used, limits[i].Units, limits[i].Window)
		}
		charges = append(charges, driver.Settlement{Request: req, At: answer.At, Units: req.Cost})
	}
	scripts.clock.Advance(limits[2].Window)
	if left := decide(driver.Request{Key: key, Policy: policies[2]}); left.Remaining() != limits[2].Units {
		t.Fatalf("%s: %d of %d remain after the window", key, left.Remaining(), limits[2].Units)
	}
}
