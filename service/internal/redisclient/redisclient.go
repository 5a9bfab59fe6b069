// Package redisclient makes the Redis client that the command uses, from a URL: for one server, for a primary
// that Sentinel watches, or for a Cluster.
//
// A client notices a failover within five seconds: a Cluster's is asked for its nodes every second while it is
// used, Sentinel announces a new primary and is asked before every connection. Connections that cannot be
// made are tried again after a pause that grows and has jitter, so that a server that comes back is not met by
// everybody at once; until then calls fail at once.
package redisclient

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// timeout bounds connecting, and each read and write. A decision takes well under a millisecond of
	// the server's time: one that takes a second is not coming.
	timeout = time.Second
	// sentinelTimeout is shorter, because up to three Sentinels that hang are asked before one connection.
	sentinelTimeout = 500 * time.Millisecond
	// sentinelDial bounds a connection with all that is asked before.
	sentinelDial = 4 * time.Second
	// reload is how old a Cluster's map of slots gets while it is used.
	reload = time.Second
	// poolSize is the most connections to one server.
	poolSize = 64
)

// New returns a client for a Redis URL, or a plain host:port, and the address for messages, which never
// has the password. It does not connect, so it works while Redis does not.
func New(url string) (client redis.UniversalClient, address string, err error) {
	t, err := parse(url)
	if err != nil {
		return nil, "", err
	}
	switch t.form {
	case sentinel:
		return redis.NewFailoverClient(t.failover()), t.String(), nil
	case cluster:
		return redis.NewClusterClient(t.cluster()), t.String(), nil
	default:
		return redis.NewClient(t.single()), t.String(), nil
	}
}

// Sentinels returns a client for each Sentinel of a URL and the name of the primary they watch; none for
// URLs of another form.
func Sentinels(url string) (clients []*redis.SentinelClient, master string, err error) {
	t, err := parse(url)
	if err != nil || t.form != sentinel {
		return nil, "", err
	}
	for _, addr := range t.addrs {
		opts := t.common(sentinelTimeout)
		opts.Addr, opts.DB = addr, 0
		opts.Username, opts.Password = t.sentinelUser, t.sentinelPassword
		clients = append(clients, redis.NewSentinelClient(opts))
	}
	return clients, t.master, nil
}

// common returns what every form needs. What the URL says as parameters (?read_timeout=3s) stays.
func (t *target) common(timeout time.Duration) *redis.Options {
	opts := *t.opts
	for _, d := range []*time.Duration{&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout, &opts.PoolTimeout} {
		if *d == 0 {
			*d = timeout
		}
	}
	if opts.PoolSize == 0 {
		opts.PoolSize = poolSize
	}
	opts.ContextTimeoutEnabled = true
	// One try to connect: a call that fails is answered now, and the next one tries again.
	opts.DialerRetries = 1
	opts.Dialer = newDialer(opts.DialTimeout, t.tls).Dial
	// Only what a user with few rights may send: no CLIENT commands on connecting.
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opts
}

func (t *target) single() *redis.Options { return t.common(timeout) }

func (t *target) failover() *redis.FailoverOptions {
	o := t.common(sentinelTimeout)
	if o.MaxRetries == 0 {
		o.MaxRetries = -1 // one that hangs is asked once, and then the next one
	}
	return &redis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		Dialer: o.Dialer, DialTimeout: max(sentinelDial, o.DialTimeout), DialerRetries: o.DialerRetries,
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, DB: o.DB,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: true,
	}
}

func (t *target) cluster() *redis.ClusterOptions {
	o := t.common(timeout)
	return &redis.ClusterOptions{
		Addrs: t.addrs, ClusterStateReloadInterval: reload,
		Dialer: o.Dialer, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}

// Primaries calls f for the primary behind a client: for every one of a Cluster, one after the other. It
// returns the first error.
func Primaries(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *redis.Client:
		return f(ctx, c)
	case *redis.ClusterClient:
		gate := make(chan struct{}, 1) // the cluster's client calls f for all at once
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			gate <- struct{}{}
			defer func() { <-gate }()
			return f(ctx, node)
		})
	default:
		return nil // New makes no other
	}
}

// Node returns a client for one server of what a URL names, such as a replica, with the same user and
// parameters.
func Node(url, addr string) (*redis.Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	opts := t.common(timeout)
	opts.Network, opts.Addr = "tcp", addr
	return redis.NewClient(opts), nil
}
