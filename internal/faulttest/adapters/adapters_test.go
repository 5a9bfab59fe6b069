// Package adapters tests what makes a Redis client a redisstore.Scripter, against real servers: that each adapter decides;
// sends a script's text only if the server does not have it; never repeats a script that may have run; returns errors of the
// right kind; and leaves the client usable.
package adapters

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
)

// Options are the options of a client under test. The zero value is the client's default.
type Options struct {
	// Timeout bounds how long the client waits for a reply. Zero is the client's default. Open leaves the
	// client's retries as they are by default.
	Timeout time.Duration
	// Cluster is true for a client of a cluster.
	Cluster bool
	// DB is the number of the database to select.
	DB int
	// Store are the options of the store. Nil is their default.
	Store *redisstore.Options
}

// A Conn is a client under test, and a store over it.
type Conn struct {
	Store *redisstore.Store
	// Ping sends a command of the client, without the store.
	Ping func() error
	// Close closes the client. The suite calls it once, last.
	Close func()
}

// An Open connects a new client to the server at an address, which is up.
type Open func(t testing.TB, addr string, opts Options) Conn

var adapters = map[string]Open{"go-redis": openGoRedis, "rueidis": openRueidis}

func openGoRedis(t testing.TB, addr string, opts Options) Conn {
	// No notifications, as New says: some of these tests wait for replicas.
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if opts.Cluster {
		return goRedis(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ReadTimeout: opts.Timeout, MaintNotificationsConfig: quiet}), opts)
	}
	return goRedis(t, redis.NewClient(&redis.Options{Addr: addr, DB: opts.DB, ReadTimeout: opts.Timeout, MaintNotificationsConfig: quiet}), opts)
}

func goRedis(t testing.TB, client redis.UniversalClient, opts Options) Conn {
	return Conn{
		Store: goredisstore.New(client, opts.Store),
		Ping:  func() error { return client.Ping(context.Background()).Err() },
		Close: func() {
			if err := client.Close(); err != nil {
				t.Errorf("the client was closed before: %v", err)
			}
		},
	}
}

func openRueidis(t testing.TB, addr string, opts Options) Conn {
	// A client finds out by itself whether the server is one of a cluster.
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, SelectDB: opts.DB, ConnWriteTimeout: opts.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	return Conn{
		Store: rueidisstore.New(client, opts.Store),
		Ping:  func() error { return client.Do(context.Background(), client.B().Ping().Build()).Error() },
		Close: client.Close,
	}
}

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it logs every connection that it cannot make
	os.Exit(m.Run())
}

func TestAdapters(t *testing.T) {
	for name, open := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range []struct {
				name string
				run  func(*testing.T, Open)
			}{
				{"every algorithm decides", testAlgorithms},
				{"a missing script is sent once, and again after a flush", testNoScript},
				{"a lost reply is charged at most once", testLostReply},
				{"a settlement whose reply is lost is applied once", testLostSettlement},
				{"a call whose reply is lost is repeated with its ID", testLostOnce},
				{"an admission waits for replicas", testReplicas},
				{"a primary with too few replicas is an unavailable store", testMinReplicas},
				{"the end of a context is the context's error", testContexts},
				{"a server that is down is an unavailable store, and decides again", testDown},
				{"a script's error has the server's text", testScriptError},
				{"a refusal by the server is classified", testRefusals},
				{"a missing permission after a write is charged", testLatePermission},
				{"a missing permission for WAIT leaves the charge", testWaitPermission},
				{"a cluster is followed, one slot in each command", testCluster},
			} {
				t.Run(test.name, func(t *testing.T) { test.run(t, open) })
			}
		})
	}
}

func TestTunedClientHeedsContexts(t *testing.T) {
	testContexts(t, func(t testing.TB, addr string, opts Options) Conn {
		return goRedis(t, redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr, ReadTimeout: opts.Timeout})), opts)
	})
}

func TestServersThatAreNotARedis(t *testing.T) {
	t.Run("go-redis", func(t *testing.T) {
		foreign(t, func(t testing.TB, addr string) error {
			client := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: addr}))
			defer client.Close()
			goredisstore.Greet(client)
			l, err := sash.New(goredisstore.New(client, nil), nil, sash.PerHour(1))
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Allow(t.Context(), "k")
			return err
		})
	})
	t.Run("rueidis", func(t *testing.T) {
		foreign(t, func(t testing.TB, addr string) error {
			client, err := rueidis.NewClient(rueidisstore.Tune(rueidis.ClientOption{InitAddress: []string{addr}}))
			if err == nil {
				client.Close()
			}
			return err
		})
	})
}

// connect opens a client for one test.
func connect(t *testing.T, open Open, addr string, opts Options) Conn {
	t.Helper()
	conn := open(t, addr, opts)
	t.Cleanup(conn.Close)
	return conn
}

// through connects a client to a new server through a proxy. The second connection bypasses the proxy.
func through(t *testing.T, open Open, opts Options) (conn, direct Conn, p *proxy, server *redistest.Server) {
	t.Helper()
	server = redistest.Start(t)
	p = newProxy(t)
	p.serve(server.Addr())
	return connect(t, open, p.addr(), opts), connect(t, open, server.Addr(), Options{}), p, server
}

// limiter returns a limiter of 10 units an hour on a sliding log.
func limiter(t *testing.T, store driver.Store) *sash.Limiter {
	t.Helper()
	return limiterBy(t, store, nil, sash.PerHour(10))
}

// optionsOf returns options with an algorithm.
func optionsOf(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	return opts
}

// limiterBy returns a limiter of 10 units a day, or of other limits.
func limiterBy(t *testing.T, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	if len(limits) == 0 {
		limits = []sash.Limit{sash.PerDay(10)}
	}
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// patient returns a context that ends only if a call hangs.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// usable fails the test if the client is no longer usable. The first pings may fail, on connections that
// broke.
func usable(t *testing.T, conn Conn) {
	t.Helper()
	var err error
	for range 5 {
		if err = conn.Ping(); err == nil {
			return
		}
	}
	t.Errorf("the client is no longer usable: %v", err)
}

// remaining returns the units that a key has left.
func remaining(t *testing.T, l *sash.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(patient(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}

// slidingLog is a policy of the default algorithm, with which tests find the names of Redis keys.
var slidingLog = func() *driver.Policy {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(1))
	if err != nil {
		panic(err)
	}
	return policy
}()
