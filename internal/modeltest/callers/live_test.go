package callers_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// live is a real server and a store on it.
type live struct {
	*redistest.Server
	client *redis.Client
	store  *redisstore.Store
}

func startLive(t testing.TB, args ...string) *live {
	t.Helper()
	server := redistest.Start(t, args...)
	client := newClient(server.Addr())
	t.Cleanup(func() { client.Close() })
	return &live{server, client, goredisstore.New(client, nil)}
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 64, DisableIdentity: true})
}

func options(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 7 * time.Millisecond // does not divide an hour
	}
	return opts
}

func (l *live) limiter(t testing.TB, a sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	limiter := newLimiter(t, l.store, options(a), limits...)
	return limiter
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
