// Package redisclient makes clients of Redis from a URL: for one server, for a primary that Sentinel watches, or
// for a Cluster. A [Client] decides, over one connection to each server. [Inspect] is for looking at servers.
//
// A client notices a failover within five seconds. A Cluster is asked for its nodes every second or two. Sentinel
// announces a new primary, and is asked every two seconds. A connection on which nothing comes for half a second
// is tried with a PING, and dropped when that has no answer within a second. One server that answers that it has
// become a replica is connected to anew, for its name may have another address now.
//
// Connections that cannot be made are tried again after a pause that grows and has jitter, so that a server that
// comes back is not met by everybody at once; until then calls fail at once.
package redisclient

import (
	"net"
	"time"

	"github.com/redis/rueidis"
)

const (
	// timeout bounds connecting, and waiting for an answer. A decision takes well under a millisecond of
	// the server's time: one that takes a second is not coming.
	timeout = time.Second
	// sentinelTimeout is shorter, because Sentinels that hang are asked one after the other.
	sentinelTimeout = 500 * time.Millisecond
	// silence is how long nothing comes on a connection before a PING finds out whether anything will.
	silence = 500 * time.Millisecond
	// reload is how old a Cluster's map of slots gets.
	reload = time.Second
	// reconcile is how often a Sentinel is asked for the primary, whose announcement may have been missed.
	reconcile = 2 * time.Second
	// redirects is how many MOVED or ASK a call follows.
	redirects = 5
	// poolSize is the most connections to one server where each call has one of its own: calls that wait for
	// replicas, and those of Inspect.
	poolSize = 64
	// poolIdle is for how long such connections are kept without use.
	poolIdle = time.Minute
)

// option returns how the target is reached by the client that decides. Of what the URL says as parameters
// it takes dial_timeout, read_timeout, protocol, client_name and pool_size.
func (t *target) option(dial *dialer) rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress:       t.addrs,
		Username:          t.opts.Username,
		Password:          t.opts.Password,
		ClientName:        t.opts.ClientName,
		SelectDB:          t.opts.DB,
		AlwaysRESP2:       t.opts.Protocol == 2,
		TLSConfig:         t.tls, // says which of a Cluster's ports to take; dial does the rest
		DialCtxFn:         dial.rueidis(t.network()),
		Dialer:            net.Dialer{Timeout: dial.timeout, KeepAlive: silence},
		ConnWriteTimeout:  or(t.opts.ReadTimeout, timeout),
		ForceSingleClient: t.form == single,
		// Only one connection to each server: everything that goes on at the same time is one pipeline.
		PipelineMultiplex:   -1,
		BlockingPoolSize:    or(t.opts.PoolSize, poolSize),
		BlockingPoolCleanup: poolIdle,
		// What has been sent is never sent again, and nothing is sent that a user with few rights may not send.
		DisableRetry:  true,
		DisableCache:  true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	}
	switch t.form {
	case single:
		o.InitAddress = []string{t.opts.Addr}
	case sentinel:
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: t.master, Username: t.sentinelUser, Password: t.sentinelPassword, TLSConfig: t.tls,
			Dialer:                  net.Dialer{Timeout: min(sentinelTimeout, dial.timeout), KeepAlive: silence},
			TopologyRefreshInterval: reconcile,
		}
	case cluster:
		o.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: reload, MaxMovedRedirections: redirects}
	}
	return o
}

func (t *target) network() string {
	if t.form == single {
		return or(t.opts.Network, "tcp")
	}
	return "tcp"
}

// or returns a value, or another one where there is none.
func or[T comparable](value, other T) T {
	var none T
	if value == none {
		return other
	}
	return value
}
