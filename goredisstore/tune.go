package goredisstore

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/sash/driver"
	"example.com/sash/redisstore"
)

// Tune sets the options that a client needs to recover quickly from a connection or a server that fails, and returns
// opts:
//
//	client := redis.NewClient(goredisstore.Tune(&redis.Options{Addr: "localhost:6379"}))
//	goredisstore.Greet(client)
//
// It keeps every timeout, number and interval that is not zero, and touches nothing else, such as addresses, TLS and
// credentials. Options from [redis.ParseURL] or [redis.UniversalOptions] (its methods Simple, Failover and Cluster) can
// be tuned as well.
//
//   - DialTimeout, ReadTimeout and WriteTimeout are 1 s. A decision takes well under a millisecond of server time, so
//     an answer that takes a second is not coming. The defaults are 5 s, 3 s and 3 s.
//   - ContextTimeoutEnabled is true, always: a call whose deadline passes closes its connection. Otherwise a silent
//     connection stays in the pool until ReadTimeout.
//   - DialerRetries is 1: a call that cannot connect fails at once, and the next one tries again. The default is 5
//     attempts, 100 ms apart, within one call.
//   - ClusterStateReloadInterval is 1 s, which bounds for how long calls go to a node of a Cluster that another one has
//     replaced. The default is a minute.
//   - MaintNotificationsConfig, where nil, turns these notifications off, because of the data race that [New] describes.
//     With Redis Enterprise set it.
//
// The result can be copied and changed. PoolSize stays: calls beyond it go together. MaxRetries and MaxRedirects stay: they
// cannot repeat a decision that may have been made.
func Tune[O redis.Options | redis.FailoverOptions | redis.ClusterOptions](opts *O) *O {
	if opts == nil {
		opts = new(O)
	}
	switch o := any(opts).(type) {
	case *redis.Options:
		tune(&o.ContextTimeoutEnabled, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
		quiet(&o.MaintNotificationsConfig)
	case *redis.FailoverOptions:
		tune(&o.ContextTimeoutEnabled, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	case *redis.ClusterOptions:
		tune(&o.ContextTimeoutEnabled, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
		quiet(&o.MaintNotificationsConfig)
		set(&o.ClusterStateReloadInterval, time.Second)
	}
	return opts
}

func tune(heeds *bool, dials *int, timeouts ...*time.Duration) {
	*heeds = true
	set(dials, 1)
	for _, timeout := range timeouts {
		set(timeout, time.Second)
	}
}

func quiet(config **maintnotifications.Config) {
	if *config == nil {
		*config = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
}

func set[T int | time.Duration](option *T, value T) {
	if *option == 0 {
		*option = value
	}
}

// Greet makes client connect through [redisstore.Dial] from now on: the error of a wrong address says what answers there,
// [redisstore.Silent] names servers that do not answer, and [redisstore.Refused] says why one could not be reached. Errors
// of calls without an answer quote both; for a Cluster that cannot be reached at all, only with [Tune]. Greet wraps the way
// in which client connects, TLS included. Behind Sentinels it greets the primary, but not the Sentinels.
//
// Call it once, before client is used. It does nothing to clients of other types than those of go-redis.
func Greet(client redis.UniversalClient) {
	if driver.Nil(client) {
		panic("goredisstore: Greet needs a client, such as redis.NewClient returns")
	}
	node := func(c *redis.Client) { c.AddHook(greeting{c.Options()}) }
	switch c := client.(type) {
	case *redis.Client:
		node(c)
	case *redis.ClusterClient:
		c.OnNewNode(node)
	}
}

// behindSentinels stands in go-redis in place of the address of a primary until the Sentinels report it.
const behindSentinels = "FailoverClient"

// A greeting is a hook of the client with these options.
type greeting struct{ opts *redis.Options }

// DialHook implements redis.Hook.
func (g greeting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, g.opts.DialTimeout) // go-redis sets none for subscriptions
		defer cancel()
		connect := func(ctx context.Context) (net.Conn, error) { return next(ctx, network, addr) }
		if addr == behindSentinels {
			conn, err := connect(ctx)
			if err != nil {
				return nil, err
			}
			addr, connect = conn.RemoteAddr().String(), func(context.Context) (net.Conn, error) { return conn, nil }
		}
		return redisstore.Dial(ctx, addr, connect)
	}
}

// ProcessHook implements redis.Hook.
func (greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (greeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
