// Package adaptertest has the tests that every adapter of a Redis client for redisstore passes, against
// real servers: that it decides, that it loads scripts when they are missing and only then, that it never
// sends a script again that may have run, that errors are of the right kind, and that the client is left
// alone.
package adaptertest

import (
	"context"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

// Options for a client under test. The zero value is the client's own default.
type Options struct {
	// Timeout bounds how long the client waits for a reply. Zero is the client's default. Whether and
	// how often the client repeats commands stays its default.
	Timeout time.Duration
	// Cluster asks for a client of a cluster.
	Cluster bool
	// DB is the number of the database.
	DB int
	// Store are the options of the store. Nil is the default.
	Store *redisstore.Options
}

// A Conn is a client under test, and a store over it.
type Conn struct {
	Store *redisstore.Store
	// Ping sends a command of the client's own.
	Ping func() error
	// Close closes the client. Run calls it once, last.
	Close func()
}

// An Open connects a new client to a server that is up.
type Open func(t testing.TB, addr string, opts Options) Conn

// Run runs all tests on an adapter.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"every algorithm decides as the store says", testAlgorithms},
		{"several subjects are decided in one command", testSubjects},
		{"concurrent callers share one limit exactly", testConcurrency},
		{"a missing script is sent once, and again after a flush", testNoScript},
		{"decisions go on after the server restarted", testRestart},
		{"a lost reply is charged at most once", testLostReply},
		{"a settlement whose reply is lost is applied once", testLostSettlement},
		{"a call whose reply is lost is repeated with its ID", testLostOnce},
		{"an admission waits for replicas", testReplicas},
		{"a primary with too few replicas is an unavailable store", testMinReplicas},
		{"the end of a context is an error of its own", RunContexts},
		{"a server that is down is an unavailable store", testDown},
		{"a script's error keeps what the server said", testScriptError},
		{"what a server refuses is known", testRefusals},
		{"a permission that is missing after a write", testLatePermission},
		{"a permission that is missing for WAIT", testWaitPermission},
		{"a cluster is followed and never asked for two slots at once", testCluster},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

// connect opens a client for one test.
func connect(t *testing.T, open Open, addr string, opts Options) Conn {
	t.Helper()
	conn := open(t, addr, opts)
	t.Cleanup(conn.Close)
	return conn
}

// through connects a client to a new server by way of a proxy. The second store bypasses the proxy.
func through(t *testing.T, open Open, opts Options) (conn, direct Conn, p *proxy, server *redistest.Server) {
	t.Helper()
	server = redistest.Start(t)
	p = newProxy(t)
	p.serve(server.Addr())
	return connect(t, open, p.addr(), opts), connect(t, open, server.Addr(), Options{}), p, server
}

// limiter makes a limiter of 10 units an hour on a sliding log.
func limiter(t *testing.T, store driver.Store) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, nil, sash.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// patient is a context that ends only when something hangs.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// usable fails the test when the client cannot be used any more. A ping on a connection that broke may
// fail.
func usable(t *testing.T, conn Conn) {
	t.Helper()
	var err error
	for range 5 {
		if err = conn.Ping(); err == nil {
			return
		}
	}
	t.Errorf("the client is not usable any more: %v", err)
}

// remaining tells what is left of a key.
func remaining(t *testing.T, l *sash.Limiter, key string) int64 {
	t.Helper()
	res, err := l.Peek(patient(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return res.Remaining
}
