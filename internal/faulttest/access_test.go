package faulttest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// leastRights is all that a user has to be allowed: to run scripts, and what they call.
var leastRights = []string{
	"~sash:*", "-@all", "+hello", "+ping", "+evalsha", "+eval", "+time",
	"+getrange", "+strlen", "+set", "+setrange", "+exists", "+del", "+unlink", "+pexpire", "+pttl",
	"+zadd", "+zcard", "+zcount", "+zrange", "+zrangebyscore", "+zrank",
	"+zrem", "+zremrangebyrank", "+zremrangebyscore",
}

// However a server is reached, it decides.
func TestWaysToAServer(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for _, way := range []struct {
			name string
			to   func(*testing.T) target
		}{
			{"TLS", func(t *testing.T) target {
				server, config := redistest.StartTLS(t)
				return target{addrs: []string{server.Addr()}, tls: config}
			}},
			{"a Unix socket", func(t *testing.T) target {
				_, path := redistest.StartUnix(t)
				return target{addrs: []string{path}, unix: true}
			}},
			{"a user of few rights", func(t *testing.T) target {
				server := redistest.Start(t)
				server.AddUser(t, "limiter", "secret", leastRights...)
				return target{addrs: []string{server.Addr()}, user: "limiter", password: "secret"}
			}},
			{"sentinels", func(t *testing.T) target {
				server := redistest.Start(t)
				s := redistest.StartSentinels(t, server, 0, patient)
				return target{addrs: s.Addrs(), sentinel: s.Name}
			}},
		} {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				at := way.to(t)
				at.patience = patient
				store := a.open(t, at)
				load := startOn(t, limiter(t, store, limits...), patient)
				more(t, "admissions", &load.admitted, 100)
				all := load.stop()
				all.isExact(t, used(t, limiter(t, store, limits...), subject), limits...)
				if n := len(all.failed()); n > 0 {
					t.Errorf("%d calls failed: %v", n, all.failed()[0].err)
				}
				decides(t, store)
			})
		}
	})
}

// decides runs every script.
func decides(t *testing.T, store driver.Store) {
	t.Helper()
	for _, algorithm := range sash.Algorithms() {
		opts := &sash.Options{Algorithm: algorithm}
		if algorithm == sash.SlidingBuckets {
			opts.Resolution = time.Millisecond
		}
		l, err := sash.New(store, opts, sash.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Reserve(t.Context(), algorithm.String(), 4)
		if err != nil {
			t.Errorf("%v: %v", algorithm, err)
			continue
		}
		if err := r.Settle(t.Context(), 2); err != nil {
			t.Errorf("%v: settle: %v", algorithm, err)
		}
		if res, err := l.AllowN(t.Context(), algorithm.String(), 10); err != nil || res.Allowed {
			t.Errorf("%v: 10 of 8: %v, %v", algorithm, res.Allowed, err)
		}
		if err := l.Reset(t.Context(), algorithm.String()); err != nil {
			t.Errorf("%v: reset: %v", algorithm, err)
		}
	}
}

// A server that refuses is an unavailable store, which says what the server said, and nothing is charged.
func TestServersThatRefuse(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for _, c := range []struct {
			name string
			says []string // one of them
			set  func(*testing.T, *redistest.Server)
		}{
			{"too few replicas", []string{"NOREPLICAS"}, func(t *testing.T, s *redistest.Server) {
				s.Must(t, "CONFIG", "SET", "min-replicas-to-write", "1")
			}},
			{"a replica", []string{"READONLY"}, func(t *testing.T, s *redistest.Server) {
				s.Must(t, "CONFIG", "SET", "replica-serve-stale-data", "yes")
				s.Must(t, "REPLICAOF", "127.0.0.1", "1")
			}},
			// Redis 6.2 and 7.0, and later ones.
			{"a missing right", []string{"can't run this command", "has no permissions to run the 'time' command"}, func(t *testing.T, s *redistest.Server) {
				s.Must(t, "ACL", "SETUSER", "default", "-time")
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				l := limiter(t, a.open(t, to(server.Addr(), patient)), limits...)
				if _, err := l.Allow(t.Context(), subject); err != nil {
					t.Fatal(err)
				}
				c.set(t, server)
				if c.name == "too few replicas" && strings.HasPrefix(server.Info(t, "server", "redis_version"), "6.") {
					return // Redis 6.2 does not apply that to scripts
				}
				res, err := l.Allow(t.Context(), subject)
				if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
					t.Errorf("%v, %v; want an unavailable store", res.Allowed, err)
				}
				if err != nil && !slices.ContainsFunc(c.says, func(s string) bool { return strings.Contains(err.Error(), s) }) {
					t.Errorf("the error contains none of %q: %v", c.says, err)
				}
			})
		}
	})
}
