package modeltest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// live is a real server, with the real scripts on the server's own time.
type live struct {
	*redistest.Server
	client *redis.Client
	store  *redisstore.Store
}

func startLive(t testing.TB, args ...string) *live {
	server := redistest.Start(t, args...)
	client := newClient(server.Addr())
	t.Cleanup(func() { client.Close() })
	return &live{server, client, goredisstore.New(client, nil)}
}

func options(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 7 * time.Millisecond // does not divide an hour
	}
	return opts
}

// key returns the name of a subject's Redis key.
func (l *live) key(t testing.TB, name string, a sash.Algorithm) string {
	t.Helper()
	return l.store.Key(name, newPolicy(t, options(a), sash.PerHour(1)))
}

func (l *live) limiter(t testing.TB, a sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return newLimiter(t, l.store, options(a), limits...)
}

func TestIdleKeysGo(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		limiter := l.limiter(t, a, sash.Every(10, 20*time.Millisecond), sash.Every(30, 50*time.Millisecond))
		for range 10 {
			if _, err := limiter.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		keys, err := l.client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 s after the last call with windows of 50 ms there are still %v", keys)
		}
	}
}

// state returns what a server shows of a key, and how much it has written.
func (l *live) state(t testing.TB, key string) string {
	t.Helper()
	dump, err := l.client.Dump(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q, changes %s", dump, l.Info(t, "persistence", "rdb_changes_since_last_save"))
}
