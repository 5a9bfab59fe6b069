package goredisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest/adaptertest"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, func(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
		var client redis.UniversalClient
		if opts.Cluster {
			client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: opts.Timeout})
		} else {
			client = redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: opts.Timeout})
		}
		return conn(t, client)
	})
}

func TestContextTimeoutEnabled(t *testing.T) {
	adaptertest.RunContexts(t, func(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
		return conn(t, redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: opts.Timeout, ContextTimeoutEnabled: true}))
	})
}

// conn wraps a client for the shared tests.
func conn(t testing.TB, client redis.UniversalClient) adaptertest.Conn {
	return adaptertest.Conn{
		Store: goredisstore.New(client, nil),
		Ping:  func() error { return client.Ping(context.Background()).Err() },
		Close: func() {
			if err := client.Close(); err != nil {
				t.Errorf("the client was closed before: %v", err)
			}
		},
	}
}
