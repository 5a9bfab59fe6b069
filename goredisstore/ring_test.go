package goredisstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// startRing returns a store on a ring of two servers, a and b.
func startRing(t *testing.T) (*redisstore.Store, map[string]*redistest.Server) {
	t.Helper()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()}})
	t.Cleanup(func() { ring.Close() })
	return goredisstore.New(ring, nil), servers
}

// A ring places keys by their hash tag alone: two keys of one Redis Cluster slot can be on two servers.
func TestRingChargesEachSubjectWhereItLives(t *testing.T) {
	store, servers := startRing(t)
	l := newLimiter(t, store, nil, sash.PerHour(1_000))
	keys := func(name string) int64 {
		n, err := servers[name].Do("DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		return n.(int64)
	}
	charge := func(subjects ...string) {
		t.Helper()
		var all []sash.Subject
		for _, s := range subjects {
			all = append(all, sash.Subject{Key: s, Cost: 1})
		}
		res, err := l.AllowAll(context.Background(), all...)
		if err != nil || !res.Allowed {
			t.Fatalf("%q: %+v, %v", subjects, res, err)
		}
		for _, s := range subjects {
			if res, err := l.Peek(context.Background(), s); err != nil || res.Remaining != 999 {
				t.Errorf("%q: a charge of %s is not where a look finds it: %+v, %v", subjects, s, res, err)
			}
		}
	}
	t.Run("subjects without a tag", func(t *testing.T) {
		for i := range 20 {
			charge("x"+strconv.Itoa(i), "y"+strconv.Itoa(i))
		}
		if keys("a") == 0 || keys("b") == 0 {
			t.Error("one server has all keys; the test shows nothing")
		}
	})
	t.Run("subjects with the same slot and different tags", func(t *testing.T) {
		for _, pair := range sameSlot(store, 8) { // some of them are on different servers
			charge(pair[0], pair[1])
		}
	})
	t.Run("subjects with the same tag", func(t *testing.T) {
		a, b := keys("a"), keys("b")
		charge(sash.KeyTogether("t", "one"), sash.KeyTogether("t", "two"))
		if a, b := keys("a")-a, keys("b")-b; a+b != 2 || a*b != 0 {
			t.Errorf("%d and %d new keys, want both on one server", a, b)
		}
	})
}

// Calls of different keys on one shard travel together, and each is charged where a look finds it.
func TestRingGathersByShard(t *testing.T) {
	store, _ := startRing(t)
	policy, err := sash.NewPolicy(nil, sash.PerHour(1_000))
	if err != nil {
		t.Fatal(err)
	}
	places := make(map[int][]driver.Request)
	var all []driver.Request
	for i := range 20 {
		req := driver.Request{Key: strconv.Itoa(i), Cost: 1, Policy: policy}
		place, ok := store.Gathers(&req)
		if !ok {
			t.Fatal("the store does not gather")
		}
		places[place], all = append(places[place], req), append(all, req)
	}
	if len(places) != 2 {
		t.Fatalf("%d places for two shards", len(places))
	}
	for _, reqs := range places {
		_, errs := store.DecideMany(t.Context(), reqs)
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
	for _, req := range all {
		req.Cost = 0
		if look, err := store.Decide(t.Context(), req); err != nil || look.Remaining() != 999 {
			t.Errorf("%s: %d remain, %v", req.Key, look.Remaining(), err)
		}
	}
	_, errs := store.DecideMany(t.Context(), all[:driver.MaxGather])
	for i, err := range errs {
		if !errors.Is(err, driver.ErrApart) {
			t.Errorf("request %d of those on two shards: %v", i, err)
		}
	}
}

// sameSlot returns pairs of subjects that a Redis Cluster has in one slot though their tags differ.
func sameSlot(store *redisstore.Store, n int) (pairs [][2]string) {
	seen := map[int]string{}
	for i := 0; len(pairs) < n; i++ {
		key := sash.KeyTogether(strconv.Itoa(i), "k")
		slot := store.Slot(key, &driver.Policy{})
		if other, ok := seen[slot]; ok {
			pairs = append(pairs, [2]string{other, key})
		}
		seen[slot] = key
	}
	return pairs
}
