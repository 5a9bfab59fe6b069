package redisclient

import (
	"context"
	"strconv"
	"testing"

	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest/adaptertest"
)

// The clients keep what every client of a store keeps: nothing is charged twice, also on a cluster.
func TestClientsKeepTheStoresPromises(t *testing.T) {
	adaptertest.Run(t, func(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
		url := "redis://" + addr + "/" + strconv.Itoa(opts.DB)
		if opts.Cluster {
			url = "redis+cluster://" + addr
		}
		if opts.Timeout > 0 {
			url += "?read_timeout=" + opts.Timeout.String()
		}
		client, _, err := New(url)
		if err != nil {
			t.Fatal(err)
		}
		return adaptertest.Conn{
			Store: goredisstore.New(client, opts.Store),
			Ping:  func() error { return client.Ping(context.Background()).Err() },
			Close: func() { _ = client.Close() },
		}
	})
}
