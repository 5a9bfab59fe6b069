package goredisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest/adaptertest"
	"example.com/sash/redisstore"
)

// quiet asks for no notifications, as New says: some of these tests wait for replicas.
var quiet = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, open)
}

func FuzzReply(f *testing.F) { adaptertest.FuzzReply(f, open) }

func open(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
	var client redis.UniversalClient
	if opts.Cluster {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: opts.Timeout, MaintNotificationsConfig: quiet})
	} else {
		client = redis.NewClient(&redis.Options{Addr: addr, DB: opts.DB, ReadTimeout: opts.Timeout, MaintNotificationsConfig: quiet})
	}
	return connTo(t, client, opts.Store)
}

func TestTunedClientHeedsContexts(t *testing.T) {
	adaptertest.RunContexts(t, func(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
		return conn(t, redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr, ReadTimeout: opts.Timeout})))
	})
}

// conn wraps a client for the shared tests.
func conn(t testing.TB, client redis.UniversalClient) adaptertest.Conn { return connTo(t, client, nil) }

func connTo(t testing.TB, client redis.UniversalClient, opts *redisstore.Options) adaptertest.Conn {
	return adaptertest.Conn{
		Store: goredisstore.New(client, opts),
		Ping:  func() error { return client.Ping(context.Background()).Err() },
		Close: func() {
			if err := client.Close(); err != nil {
				t.Errorf("the client was closed before: %v", err)
			}
		},
	}
}

func TestServersThatAreNotARedis(t *testing.T) {
	adaptertest.RunForeign(t, func(t testing.TB, addr string) error {
		client := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr}))
		defer client.Close()
		goredisstore.Greet(client)
		l := newLimiter(t, goredisstore.New(client, nil), nil, sash.PerHour(1))
		_, err := l.Allow(t.Context(), "k")
		return err
	})
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
