package faulttest

import (
	"bufio"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// testRefusals makes real servers refuse, and checks how redisstore classifies their errors through this client.
func testRefusals(t *testing.T, a adapter) {
	for _, c := range []struct {
		name                     string
		refuse                   [][]string // commands that make the server refuse
		again                    bool       // it refuses new connections
		misconfigured, uncharged bool
		says                     []string
	}{
		{"no password", [][]string{{"CONFIG", "SET", "requirepass", "secret"}}, true, true, true, nil},
		{"a user that was switched off", [][]string{{"ACL", "SETUSER", "default", "off"}}, true, true, true, nil},
		{"scripts are not permitted", [][]string{{"ACL", "SETUSER", "default", "-evalsha", "-eval"}}, false, true, true, nil},
		{"the keys are not permitted", [][]string{{"ACL", "SETUSER", "default", "resetkeys", "~other:*"}}, false, true, true, nil},
		{"a command of the script is not permitted", [][]string{{"ACL", "SETUSER", "default", "-getrange"}}, false, true, false, nil},
		{"a key of another type", [][]string{{"LPUSH", "sash:log3:k", "x"}}, false, true, false, []string{"WRONGTYPE", "log.lua"}},
		{"a foreign value in the key", [][]string{{"SET", "sash:log3:k", "x"}}, false, true, true, nil},
		{"a replica", [][]string{{"REPLICAOF", "127.0.0.1", "1"}}, false, false, true, nil},
		{"no memory", [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, false, false, true, nil},
		{"too few replicas", [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, false, false, true, []string{"NOREPLICAS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			conn := a.dial(t, plain(server.Addr()))
			check(t, conn.ping())
			server.Must(t, "PING") // on a connection that stays
			for _, command := range c.refuse {
				server.Must(t, command...)
			}
			if c.again {
				server.Must(t, "CLIENT", "KILL", "SKIPME", "yes")
			}
			l := limiter(t, conn, ten)
			if c.name == "too few replicas" && strings.HasPrefix(server.Info(t, "server", "redis_version"), "6.") {
				if res, err := l.Allow(minute(t), "k"); err != nil || !res.Allowed { // Redis applies it to scripts from 7.0 on
					t.Errorf("a server that does not apply the setting to scripts: %+v, %v", res, err)
				}
				return
			}
			isRefused(t, func() error { _, err := l.Allow(minute(t), "k"); return err }, c.misconfigured, c.uncharged, c.says...)
		})
	}
	t.Run("a database that does not exist", func(t *testing.T) {
		two, one, r := redistest.Start(t), redistest.Start(t, "--databases", "1"), newRelay(t)
		r.serve(two.Addr())
		at := plain(r.addr())
		at.db = 1
		conn := a.dial(t, at)
		check(t, conn.ping())
		r.move(one.Addr())
		l := limiter(t, conn, ten)
		isRefused(t, func() error { _, err := l.Allow(minute(t), "k"); return err }, true, true)
	})
}

// isRefused calls until the error is not that of a broken connection, and checks its class and text.
func isRefused(t *testing.T, call func() error, misconfigured, uncharged bool, says ...string) {
	t.Helper()
	var err error
	for range 5 {
		if err = call(); redisstore.Misconfigured(err) == misconfigured && redisstore.Uncharged(err) == uncharged {
			break
		}
	}
	if !errors.Is(err, sash.ErrUnavailable) || redisstore.Misconfigured(err) != misconfigured || redisstore.Uncharged(err) != uncharged {
		t.Errorf("%v: Misconfigured is %v, Uncharged is %v", err, redisstore.Misconfigured(err), redisstore.Uncharged(err))
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}

// If the missing permission is for a command after the first write, the call was charged.
func testLatePermission(t *testing.T, a adapter) {
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			server := redistest.Start(t)
			l := limiterWith(t, a.dial(t, plain(server.Addr())), algorithm, ten)
			call, denied := func() error { _, err := l.Allow(minute(t), "k"); return err }, "-pexpire"
			if algorithm != sash.SortedSetLog {
				// A string calls PEXPIRE only once it is older, or never. An ID is added behind its end.
				call = func() error { _, err := l.AllowOnce(minute(t), "id", "k", 1); return err }
				denied = "-strlen"
			}
			server.Must(t, "ACL", "SETUSER", "default", denied)
			isRefused(t, call, true, false)
		})
	}
}

// If the server refuses WAIT, the script before it has run.
func testWaitPermission(t *testing.T, a adapter) {
	server := redistest.Start(t)
	at := plain(server.Addr())
	at.options = &redisstore.Options{Replicas: 1, ReplicaTimeout: time.Millisecond}
	l := limiter(t, a.dial(t, at), ten)
	server.Must(t, "ACL", "SETUSER", "default", "-wait")
	isRefused(t, func() error {
		_, err := l.Allow(minute(t), "k")
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			if strings.HasPrefix(cause.Error(), "NOPERM") {
				t.Errorf("the server's error for WAIT is in the chain: %v", err)
			}
		}
		return err
	}, true, false)
	wantUsed(t, limiter(t, a.dial(t, plain(server.Addr())), ten), "k", 1)
}

// The error of the first decision on a server that is not a Redis, or not the one that the client expects, says what the
// server is and what to do.
func TestServersThatAreNotARedis(t *testing.T) {
	web, secureWeb := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	secureWeb.Config.ErrorLog = log.New(io.Discard, "", 0)
	secureWeb.StartTLS()
	t.Cleanup(web.Close)
	t.Cleanup(secureWeb.Close)
	at := func(addr string) func(testing.TB) string { return func(testing.TB) string { return addr } }
	lines := func(greeting, answer string) func(testing.TB) string {
		return func(t testing.TB) string { return startLines(t, greeting, answer) }
	}
	for _, c := range []struct {
		name string
		addr func(testing.TB) string
		says []string
	}{
		{"a web server", at(web.Listener.Addr().String()), []string{"HTTP/1.1 400 Bad Request", "web server", "check the address"}},
		{"a web server with TLS", at(secureWeb.Listener.Addr().String()), []string{"TLS"}},
		{"a Redis with TLS", func(t testing.TB) string { secure, _ := redistest.StartTLS(t); return secure.Addr() }, []string{"TLS"}},
		{"memcached", lines("", "ERROR"), []string{"ERROR", "memcached"}},
		{"an SSH server", lines("SSH-2.0-OpenSSH_9.2", ""), []string{"SSH-2.0-OpenSSH_9.2", "SSH server"}},
		{"a mail server", lines("+OK ready", "+OK"), []string{"+OK", "not a Redis"}},
		{"a server of other bytes", lines("\x00\x17\x00\x01", "\x00\x01"), []string{"not a Redis", "check the address"}},
	} {
		for _, a := range adapters {
			t.Run(a.name+"/"+c.name, func(t *testing.T) {
				conn, err := a.try(t, target{addrs: []string{c.addr(t)}})
				if err == nil { // this client does not connect before the first call
					_, err = limiter(t, conn, ten).Allow(t.Context(), "k")
				}
				if err == nil {
					t.Fatal("it answered")
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%v, want %q", err, text)
					}
				}
			})
		}
	}
}

// startLines starts a server that greets with a line, unless that is empty, and answers every line with another.
func startLines(t testing.TB, greeting, answer string) string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				if greeting != "" {
					_, _ = conn.Write([]byte(greeting + "\r\n"))
				}
				for lines := bufio.NewReader(conn); ; {
					if _, err := lines.ReadString('\n'); err != nil {
						return
					}
					_, _ = conn.Write([]byte(answer + "\r\n"))
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); work.Wait() })
	return listener.Addr().String()
}

// Half of the calls are on a key that holds something else. They are rejected, also in mode open, and do not count as
// failures: Redis decides all other calls.
func TestABadKeyTakesTheStoreFromNoOther(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		server := redistest.Start(t)
		redis := a.open(t, to(server.Addr(), time.Minute))
		for _, algorithm := range sash.Algorithms() {
			t.Run(algorithm.String(), func(t *testing.T) { rejects(t, server, redis, algorithm) })
		}
	})
}

func rejects(t *testing.T, server *redistest.Server, redis *redisstore.Store, algorithm sash.Algorithm) {
	store := openWith(t, redis, time.Minute)
	l := limiterWith(t, store, algorithm, sash.PerHour(100_000))
	name := func(key string) string { return redis.Key(key, l.Policy()) }
	server.Must(t, "DEL", name("a list"), name("foreign"))
	server.Must(t, "LPUSH", name("a list"), "x")
	if algorithm == sash.SortedSetLog {
		server.Must(t, "ZADD", name("foreign"), "5", "member")
	} else {
		server.Must(t, "SET", name("foreign"), "a value that another program has left here, of any length: "+strings.Repeat("0123456789 ", 3))
	}
	calls := map[string]func() error{}
	for _, kind := range []string{"a list", "foreign"} {
		calls[kind] = func() error { _, err := l.Allow(t.Context(), kind); return err }
		calls[kind+", once"] = func() error { _, err := l.AllowOnce(t.Context(), "id", kind, 1); return err }
		calls[kind+", both"] = func() error {
			_, err := l.AllowAll(t.Context(), sash.Subject{Key: "good", Cost: 1}, sash.Subject{Key: kind, Cost: 1})
			return err
		}
	}
	for kind, bad := range calls {
		for i := range 60 {
			if i < 20 || i%2 == 0 {
				if err := bad(); !errors.Is(err, driver.ErrRejected) || !errors.Is(err, sash.ErrUnavailable) {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			if i < 20 {
				continue
			}
			if res, err := l.Allow(t.Context(), "good"); err != nil || res.Source != sash.FromStore {
				t.Fatalf("%s takes the store from others: %+v, %v", kind, res, err)
			}
		}
	}
	if store.State() != failover.Up {
		t.Errorf("the store is %v", store.State())
	}
}
