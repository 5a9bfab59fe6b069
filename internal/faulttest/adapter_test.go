package faulttest

import (
	"context"
	"crypto/tls"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
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
	tls            *tls.Config
	user, password string
	patience       time.Duration // how long the client waits for a reply; 0 is what Tune sets
	pool           int           // connections, or calls on their way where one is shared; 0 is many
	db             int           // the number of the database
	plain          bool          // the client has its defaults, and neither Tune's nor Greet's
	options        *redisstore.Options
}

// An adapter makes a client and a store over it, as a user would.
type adapter struct {
	name string
	try  func(testing.TB, target) (connection, error)
}

// A connection is a client and a store over it.
type connection struct {
	*redisstore.Store
	ping func() error // sends a command of the client, without the store
}

// dial connects to a server that is up.
func (a adapter) dial(t testing.TB, at target) connection {
	t.Helper()
	conn, err := a.try(t, at)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// open is dial for the store alone.
func (a adapter) open(t testing.TB, at target) *redisstore.Store {
	t.Helper()
	return a.dial(t, at).Store
}

var adapters = []adapter{{"go-redis", tryGoRedis}, {"rueidis", tryRueidis}}

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

func tryGoRedis(t testing.TB, at target) (connection, error) {
	opts := redis.UniversalOptions{
		Addrs: at.addrs, MasterName: at.sentinel, IsClusterMode: at.cluster, DB: at.db,
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ReadTimeout: at.patience, PoolSize: at.pool, PoolTimeout: time.Minute,
	}
	if at.patience > time.Second { // a busy machine is late to connect and to write, too
		opts.DialTimeout, opts.WriteTimeout = at.patience, at.patience
	}
	var client redis.UniversalClient
	switch {
	case at.plain:
		// No notifications, as New says: some tests wait for replicas.
		opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		client = redis.NewUniversalClient(&opts)
	case at.cluster:
		client = redis.NewClusterClient(goredisstore.Tune(opts.Cluster()))
	case at.sentinel != "":
		client = redis.NewFailoverClient(goredisstore.Tune(opts.Failover()))
	default:
		client = redis.NewClient(goredisstore.Tune(opts.Simple()))
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil && at.plain {
			t.Errorf("the client was closed before: %v", err)
		}
	})
	if !at.plain {
		goredisstore.Greet(client)
	}
	return connection{goredisstore.New(client, at.options), func() error { return client.Ping(context.Background()).Err() }}, nil
}

func tryRueidis(t testing.TB, at target) (connection, error) {
	opts := rueidis.ClientOption{
		InitAddress: at.addrs, Sentinel: rueidis.SentinelOption{MasterSet: at.sentinel}, SelectDB: at.db,
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ConnWriteTimeout: at.patience,
		DisableCache:     at.user != "", // its invalidations are a right of their own
	}
	if at.patience > time.Second {
		opts.Dialer.Timeout = at.patience
	}
	if at.pool > 0 {
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1 // a ring of two places, on one connection
	}
	if !at.plain {
		opts = rueidisstore.Tune(opts)
	}
	client, err := rueidis.NewClient(opts)
	if err != nil {
		return connection{}, err
	}
	t.Cleanup(client.Close)
	ping := func() error { return client.Do(context.Background(), client.B().Ping().Build()).Error() }
	return connection{rueidisstore.New(client, at.options), ping}, nil
}
