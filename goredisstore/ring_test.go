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
)

// A ring places keys by their hash tag alone: two keys of one Redis Cluster slot can be on two servers.
func TestRingChargesEachSubjectWhereItLives(t *testing.T) {
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()}})
	t.Cleanup(func() { ring.Close() })
	l := newLimiter(t, goredisstore.New(ring, nil), nil, sash.PerHour(1_000))
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
		for _, pair := range sameSlot(8) { // some of them are on different servers
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
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()}})
	t.Cleanup(func() { ring.Close() })
	policy, err := sash.NewPolicy(nil, sash.PerHour(1_000))
	if err != nil {
		t.Fatal(err)
	}
	store := goredisstore.New(ring, nil)
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
func sameSlot(n int) (pairs [][2]string) {
	seen := map[uint16]string{}
	for i := 0; len(pairs) < n; i++ {
		tag := strconv.Itoa(i)
		slot := crc16(tag) & 16383
		if other, ok := seen[slot]; ok {
			pairs = append(pairs, [2]string{sash.KeyTogether(other, "k"), sash.KeyTogether(tag, "k")})
		}
		seen[slot] = tag
	}
	return pairs
}

// crc16 is CRC-16/XMODEM, which places keys on a Redis Cluster.
func crc16(s string) (crc uint16) {
	for _, c := range []byte(s) {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}
