package faulttest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// The server forgets its scripts again and again. No caller notices.
func TestScriptsAreFlushed(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		for range 30 {
			more(t, "admissions between two flushes", &load.admitted, 15)
			server.Must(t, "SCRIPT", "FLUSH")
		}
		all := load.stop()

		all.isExact(t, used(t, l, subject), limits...)
		all.log(t, "30 flushes")
	})
}

// The server has no memory left, for a while. Refusals go on, and a call that fails is not charged.
func TestMemoryIsUsedUp(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
		load := startOn(t, l, patient)
		for range 3 {
			more(t, "admissions before the fault", &load.admitted, 100)
			server.Must(t, "CONFIG", "SET", "maxmemory", "1")
			more(t, "calls that fail", &load.failed, 50)
			server.Must(t, "CONFIG", "SET", "maxmemory", "0")
		}
		await(t, "the limit is reached", func() bool { return used(t, l, subject) == long.Units })
		failed := load.failed.Load()
		server.Must(t, "CONFIG", "SET", "maxmemory", "1")
		more(t, "refusals without memory", &load.refused, 200)
		if n := load.failed.Load() - failed; n > 0 {
			t.Errorf("%d refusals failed without memory", n)
		}
		all := load.stop()

		for _, c := range all.failed() {
			if !errors.Is(c.err, sash.ErrUnavailable) || !strings.Contains(c.err.Error(), "OOM") {
				t.Fatalf("a call without memory: %v", c.err)
			}
		}
		charges := used(t, l, subject)
		all.isExact(t, charges, limits...)
		all.log(t, "%d units are charged", charges)
	})
}

// The server evicts keys to make room, although it should never be configured to. Each time a key goes, its
// subject may be admitted anew, and no more than that.
func TestKeysAreEvicted(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru", "--notify-keyspace-events", "Ee")
		lost := evictions(t, server)
		// Scripts and connections take their memory before there is a limit to it.
		store := a.open(t, to(server.Addr(), patient))
		limit := sash.Every(2, time.Hour)
		l := limiter(t, store, limit)
		warm := startOn(t, l, patient)
		more(t, "calls", &warm.refused, 100)
		warm.stop()
		base, err := strconv.Atoi(server.Info(t, "memory", "used_memory"))
		if err != nil {
			t.Fatal(err)
		}
		server.Must(t, "CONFIG", "SET", "maxmemory", strconv.Itoa(base+100_000))
		// The keys of all subjects need several times that, also when connections give memory back. Half of the subjects
		// are asked for one unit a call and half for two: without losses they admit 6000 calls.
		const subjects = 4000
		key := func(n int) string { return sash.Key("evicted", strconv.Itoa(n%subjects)) }
		load := start(t, l, patient, func(caller, i int) string { return key(caller*500 + i) })
		more(t, "admissions that subjects have only when they lose their keys", &load.admitted, subjects/2*(2+1)+500)
		await(t, "evictions", func() bool { return evicted(t, server) > 1000 })
		all := load.stop()

		gone := lost(evicted(t, server))
		policy, err := sash.NewPolicy(nil, limit)
		if err != nil {
			t.Fatal(err)
		}
		byKey := map[string]history{}
		for _, c := range all {
			byKey[c.key] = append(byKey[c.key], c)
		}
		over, worst := 0, int64(0)
		for key, calls := range byKey {
			losses := gone[store.Key(key, policy)]
			calls.keepsTo(t, 1+losses, limit)
			if n := calls.admitted().units(); n > limit.Units {
				over, worst = over+1, max(worst, n-limit.Units)
			}
		}
		if over == 0 {
			t.Error("no subject was admitted beyond its limit: this test shows nothing")
		}
		all.log(t, "%d subjects of %d lost keys and were admitted up to %d units beyond %d", over, len(byKey), worst, limit.Units)
	})
}

func evicted(t testing.TB, server *redistest.Server) int {
	t.Helper()
	n, err := strconv.Atoi(server.Info(t, "stats", "evicted_keys"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// evictions listens for evicted keys. The function that it returns waits for total evictions and returns how often
// each key was evicted.
func evictions(t testing.TB, server *redistest.Server) func(total int) map[string]int64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	events := client.Subscribe(t.Context(), "__keyevent@0__:evicted")
	t.Cleanup(func() { events.Close() })
	if _, err := events.Receive(t.Context()); err != nil { // it listens from here on
		t.Fatal(err)
	}
	type counts struct {
		byKey map[string]int64
		total int
	}
	state := make(chan counts, 1)
	state <- counts{byKey: map[string]int64{}}
	go func() {
		for {
			event, err := events.ReceiveMessage(t.Context())
			if err != nil {
				return
			}
			c := <-state
			c.byKey[event.Payload]++
			c.total++
			state <- c
		}
	}()
	return func(total int) map[string]int64 {
		var byKey map[string]int64
		await(t, fmt.Sprintf("%d events of evictions", total), func() bool {
			c := <-state
			defer func() { state <- c }()
			byKey = c.byKey
			return c.total >= total
		})
		return byKey
	}
}
