// Package redisclient creates Redis clients from a URL: for one server, for a primary that Sentinel watches, or for a
// Cluster. A [Client] has one connection to each server, on which concurrent calls travel together.
//
// A client notices a failover within five seconds. It reads the nodes of a Cluster every second or two. Sentinel
// announces a new primary, and the client also queries it every two seconds. It tests a connection that is silent for
// half a second with a PING, and drops it if there is no answer within a second. If a single server reports that it has
// become a replica, the client reconnects, because the server's name may resolve to another address now.
//
// Failed connections are retried after a growing pause with jitter, so that a server that comes back does not face all
// clients at once. Until then calls fail at once.
package redisclient

import (
	"cmp"
	"net"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/rueidisstore"
)

const (
	// poolSize bounds the connections to one server for calls that need their own: calls that wait for replicas.
	poolSize = 64
	// poolIdle is how long such a connection may be idle.
	poolIdle = time.Minute
)

// option returns the options of the client. The caller adds the dialer.
func (t *target) option() rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress:       t.addrs,
		Username:          t.user,
		Password:          t.password,
		ClientName:        t.name,
		SelectDB:          t.db,
		AlwaysRESP2:       t.resp2,
		TLSConfig:         t.tls, // selects the TLS port of a Cluster; the dialer does the rest
		Dialer:            net.Dialer{Timeout: t.dial},
		ConnWriteTimeout:  t.read,
		ForceSingleClient: t.form == single,
		// Only one connection to each server: all concurrent calls share one pipeline.
		PipelineMultiplex:   -1,
		BlockingPoolSize:    cmp.Or(t.pool, poolSize),
		BlockingPoolCleanup: poolIdle,
		// Never resend a command, and send none that needs further permissions.
		DisableRetry:  true,
		DisableCache:  true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	}
	if t.form == sentinel {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: t.master, Username: t.sentinelUser, Password: t.sentinelPassword, TLSConfig: t.tls,
		}
	}
	return rueidisstore.Tune(o)
}
