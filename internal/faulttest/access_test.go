package faulttest

import (
	"testing"

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
				a.dial(t, at).decides(t)
			})
		}
	})
}
