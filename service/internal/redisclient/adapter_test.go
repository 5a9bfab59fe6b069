package redisclient

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

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
		client := newClient(t, url)
		return adaptertest.Conn{
			Store: client.Store(opts.Store),
			Ping:  func() error { return rested(client.Ping) },
			Close: client.Close,
		}
	})
}

// rested calls f until it does not fail for the pause after a connection that could not be made.
func rested(f func(context.Context) error) (err error) {
	for range 20 {
		if err = f(context.Background()); err == nil || !strings.Contains(err.Error(), "not tried again yet") {
			return err
		}
		<-time.After(longestPause / 10)
	}
	return err
}
