package rueidisstore_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"

	"example.com/sash/internal/redistest/adaptertest"
	"example.com/sash/rueidisstore"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, open)
}

func FuzzReply(f *testing.F) { adaptertest.FuzzReply(f, open) }

func open(t testing.TB, addr string, opts adaptertest.Options) adaptertest.Conn {
	// A client finds out by itself whether the server is one of a cluster.
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, SelectDB: opts.DB, ConnWriteTimeout: opts.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	return adaptertest.Conn{
		Store: rueidisstore.New(client, opts.Store),
		Ping:  func() error { return client.Do(context.Background(), client.B().Ping().Build()).Error() },
		Close: client.Close,
	}
}

func TestServersThatAreNotARedis(t *testing.T) {
	adaptertest.RunForeign(t, func(t testing.TB, addr string) error {
		client, err := rueidis.NewClient(rueidisstore.Tune(rueidis.ClientOption{InitAddress: []string{addr}}))
		if err == nil {
			client.Close()
		}
		return err
	})
}
