package adapters

import (
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// testRefusals makes real servers refuse, and checks how redisstore classifies their errors through this
// client.
func testRefusals(t *testing.T, open Open) {
	for _, c := range []struct {
		name                     string
		refuse                   [][]string // commands that make the server refuse
		again                    bool       // it refuses new connections
		misconfigured, uncharged bool
	}{
		{"no password", [][]string{{"CONFIG", "SET", "requirepass", "secret"}}, true, true, true},
		{"a user that was switched off", [][]string{{"ACL", "SETUSER", "default", "off"}}, true, true, true},
		{"scripts are not permitted", [][]string{{"ACL", "SETUSER", "default", "-evalsha", "-eval"}}, false, true, true},
		{"the keys are not permitted", [][]string{{"ACL", "SETUSER", "default", "resetkeys", "~other:*"}}, false, true, true},
		{"a command of the script is not permitted", [][]string{{"ACL", "SETUSER", "default", "-getrange"}}, false, true, false},
		{"a key of another type", [][]string{{"LPUSH", "sash:log:k", "x"}}, false, true, false},
		{"a foreign value in the key", [][]string{{"SET", "sash:log:k", "x"}}, false, true, true},
		{"a replica", [][]string{{"REPLICAOF", "127.0.0.1", "1"}}, false, false, true},
		{"no memory", [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, false, false, true},
		{"too few replicas", [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			conn := connect(t, open, server.Addr(), Options{})
			if err := conn.Ping(); err != nil {
				t.Fatal(err)
			}
			server.Must(t, "PING") // on a connection that stays
			if c.name == "too few replicas" && !asksForReplicas(t, server) {
				return
			}
			for _, command := range c.refuse {
				server.Must(t, command...)
			}
			if c.again {
				server.Must(t, "CLIENT", "KILL", "SKIPME", "yes")
			}
			refused(t, conn.Store, func(l *sash.Limiter) error { _, err := l.Allow(patient(t), "k"); return err }, nil, c.misconfigured, c.uncharged)
		})
	}
	t.Run("a database that does not exist", func(t *testing.T) {
		two, one := redistest.Start(t), redistest.Start(t, "--databases", "1")
		p := newProxy(t)
		p.serve(two.Addr())
		conn := connect(t, open, p.addr(), Options{DB: 1})
		if err := conn.Ping(); err != nil {
			t.Fatal(err)
		}
		p.move(one.Addr())
		refused(t, conn.Store, func(l *sash.Limiter) error { _, err := l.Allow(patient(t), "k"); return err }, nil, true, true)
	})
}

// refused calls until the error is not that of a broken connection, and checks its class.
func refused(t *testing.T, store driver.Store, ask func(*sash.Limiter) error, opts *sash.Options, misconfigured, uncharged bool) {
	t.Helper()
	l, err := sash.New(store, opts, sash.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err = ask(l); redisstore.Misconfigured(err) == misconfigured && redisstore.Uncharged(err) == uncharged {
			break
		}
	}
	if !errors.Is(err, sash.ErrUnavailable) || redisstore.Misconfigured(err) != misconfigured || redisstore.Uncharged(err) != uncharged {
		t.Errorf("%v: Misconfigured is %v, Uncharged is %v", err, redisstore.Misconfigured(err), redisstore.Uncharged(err))
	}
}

// If the missing permission is for a command after the first write, the call was charged.
func testLatePermission(t *testing.T, open Open) {
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			opts := optionsOf(algorithm)
			server := redistest.Start(t)
			conn := connect(t, open, server.Addr(), Options{})
			call, denied := func(l *sash.Limiter) error { _, err := l.Allow(patient(t), "k"); return err }, "-pexpire"
			if algorithm != sash.SortedSetLog {
				// A string calls PEXPIRE only once it is older, or never. An ID is added behind its end.
				call = func(l *sash.Limiter) error { _, err := l.AllowOnce(patient(t), "id", "k", 1); return err }
				denied = "-strlen"
			}
			server.Must(t, "ACL", "SETUSER", "default", denied)
			refused(t, conn.Store, call, opts, true, false)
		})
	}
}

// If the server refuses WAIT, the script before it has run.
func testWaitPermission(t *testing.T, open Open) {
	server := redistest.Start(t)
	conn := connect(t, open, server.Addr(), Options{Store: &redisstore.Options{Replicas: 1, ReplicaTimeout: time.Millisecond}})
	look := limiter(t, connect(t, open, server.Addr(), Options{}).Store)
	server.Must(t, "ACL", "SETUSER", "default", "-wait")
	_, err := limiter(t, conn.Store).Allow(patient(t), "k")
	if !errors.Is(err, sash.ErrUnavailable) || !redisstore.Misconfigured(err) || redisstore.Uncharged(err) {
		t.Errorf("%v: Misconfigured is %v, Uncharged is %v", err, redisstore.Misconfigured(err), redisstore.Uncharged(err))
	}
	for err := err; err != nil; err = errors.Unwrap(err) {
		if text := err.Error(); len(text) > 6 && text[:6] == "NOPERM" {
			t.Errorf("the server's error for WAIT is in the chain: %v", err)
		}
	}
	if got := remaining(t, look, "k"); got != 9 {
		t.Errorf("%d of 10 are left", got)
	}
}
