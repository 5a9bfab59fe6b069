package faulttest

import (
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
				server.Must(t, append([]string{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}, leastRights...)...)
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
