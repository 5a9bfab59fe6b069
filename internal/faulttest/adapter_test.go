package faulttest

import (
	"context"
	"crypto/tls"
	"flag"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"

	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
)

// TestMain silences a client library that logs every connection that it cannot make, and runs more
// tests at once than there are processors: most of their time they wait.
func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{})
	if job := os.Getenv(waitersEnv); job != "" {
		if err := waitersMain(job); err != nil {
			panic(err)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A target says how a server is reached. The zero value of each field but addrs is the usual way.
type target struct {
	addrs          []string // the server, the sentinels, or nodes of the cluster
	sentinel       string   // what sentinels call the primary
	cluster        bool
	unix           bool
	tls            *tls.Config
	user, password string
	patience       time.Duration // how long the client waits for a reply; 0 is what Tune sets
	pool           int           // connections, or calls on their way where one is shared; 0 is many
	options        *redisstore.Options
}

// An adapter is a store over a client library, as a user would set it up.
type adapter struct {
	name string
	open func(testing.TB, target) *redisstore.Store
}

var adapters = []adapter{{"go-redis", openGoRedis}, {"rueidis", openRueidis}}

// each runs a test with every adapter, side by side.
func each(t *testing.T, f func(*testing.T, adapter)) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f(t, a)
		})
	}
}

// to is a server at an address.
func to(addr string, patience time.Duration) target {
	return target{addrs: []string{addr}, patience: patience}
}

func openGoRedis(t testing.TB, at target) *redisstore.Store {
	opts := redis.UniversalOptions{
		Addrs: at.addrs, MasterName: at.sentinel, IsClusterMode: at.cluster,
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ReadTimeout: at.patience, PoolSize: at.pool, PoolTimeout: time.Minute,
	}
	var client redis.UniversalClient
	switch {
	case at.cluster:
		client = redis.NewClusterClient(goredisstore.Tune(opts.Cluster()))
	case at.sentinel != "":
		client = redis.NewFailoverClient(goredisstore.Tune(opts.Failover()))
	default:
		simple := opts.Simple()
		if at.unix {
			simple.Network = "unix"
		}
		client = redis.NewClient(goredisstore.Tune(simple))
	}
	t.Cleanup(func() { client.Close() })
	goredisstore.Greet(client)
	return goredisstore.New(client, at.options)
}

func openRueidis(t testing.TB, at target) *redisstore.Store {
	opts := rueidis.ClientOption{
		InitAddress: at.addrs, Sentinel: rueidis.SentinelOption{MasterSet: at.sentinel},
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ConnWriteTimeout: at.patience,
		DisableCache:     at.user != "", // its invalidations are a right of their own
	}
	if at.unix {
		opts.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	if at.pool > 0 {
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1 // a ring of two places, on one connection
	}
	client, err := rueidis.NewClient(rueidisstore.Tune(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return rueidisstore.New(client, at.options)
}
