package redisclient

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
)

// sentinelDial bounds connecting through Sentinels, including the queries.
const sentinelDial = 4 * time.Second

// Inspect returns a client for what a [Client] is not for: inspecting the servers of a Redis URL one by one, and commands
// that decide nothing and must not delay those that do. It does not connect.
func Inspect(url string) (redis.UniversalClient, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	switch t.form {
	case sentinel:
		return redis.NewFailoverClient(t.failover()), nil
	case cluster:
		return redis.NewClusterClient(t.cluster()), nil
	default:
		return redis.NewClient(t.single()), nil
	}
}

// Sentinels returns a client for each Sentinel of a URL and the name of the primary that they watch. It returns none for
// other forms of URLs.
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

// common returns the options of every form. Parameters of the URL (?read_timeout=3s) take precedence over timeout. Where
// both are zero, goredisstore.Tune says how long.
func (t *target) common(timeout time.Duration) *redis.Options {
	opts := *t.opts
	for _, d := range []*time.Duration{&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout} {
		*d = cmp.Or(*d, timeout)
	}
	goredisstore.Tune(&opts)
	opts.PoolTimeout = cmp.Or(opts.PoolTimeout, opts.ReadTimeout)
	opts.PoolSize = cmp.Or(opts.PoolSize, poolSize)
	opts.Dialer = newDialer(opts.DialTimeout, t.tls).Dial
	opts.DisableIdentity = true // send nothing that needs further permissions: no CLIENT commands on connecting
	return &opts
}

func (t *target) single() *redis.Options { return t.common(0) }

func (t *target) failover() *redis.FailoverOptions {
	o := t.common(sentinelTimeout)
	if o.MaxRetries == 0 {
		o.MaxRetries = -1 // try a hanging Sentinel once, then the next one
	}
	return goredisstore.Tune(&redis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		Dialer: o.Dialer, DialTimeout: max(sentinelDial, o.DialTimeout),
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, DB: o.DB,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: true,
	})
}

func (t *target) cluster() *redis.ClusterOptions {
	o := t.common(0)
	return goredisstore.Tune(&redis.ClusterOptions{
		Addrs: t.addrs, Dialer: o.Dialer, DialTimeout: o.DialTimeout,
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: true,
	})
}

// Primaries calls f for the primary behind a client, or for each primary of a Cluster, one after the other. It returns
// the first error.
func Primaries(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *redis.Client:
		return f(ctx, c)
	case *redis.ClusterClient:
		gate := make(chan struct{}, 1) // the cluster client calls f concurrently
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			gate <- struct{}{}
			defer func() { <-gate }()
			return f(ctx, node)
		})
	default:
		return nil // Inspect makes no other
	}
}

// Node returns a client for one server, such as a replica, with the user and the parameters of a URL.
func Node(url, addr string) (*redis.Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	opts := t.common(0)
	opts.Network, opts.Addr = "tcp", addr
	return redis.NewClient(opts), nil
}
