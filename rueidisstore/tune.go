package rueidisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
)

// Tune sets the options that a client needs to recover quickly from a connection or a server that fails, and returns
// the result:
//
//	client, err := rueidis.NewClient(rueidisstore.Tune(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}}))
//
// It keeps every option that is not zero, and touches nothing else, such as addresses, TLS and credentials.
//
//   - ConnWriteTimeout is 1 s: a call waits that long for its answer, and so does the PING that tests a silent
//     connection. A decision takes well under a millisecond of server time, so an answer that takes a second is not
//     coming. The default is 10 s, for which every call on a connection that fell silent fails.
//   - Dialer.KeepAlive is 500 ms, after which a PING tests a silent connection. The default is 1 s.
//   - Dialer.Timeout is 1 s, for connecting. Sentinel.Dialer.Timeout is at most 500 ms, because hanging Sentinels are
//     tried one after the other. The defaults are 5 s.
//   - Sentinel.TopologyRefreshInterval is 2 s: a Sentinel is asked for the primary that often, in case its announcement
//     was missed. The default is never.
//   - ClusterOption.ShardsRefreshInterval is 1 s, which bounds for how long calls go to a node of a Cluster that another
//     one has replaced. The default is to notice it by failed calls only.
//   - ClusterOption.MaxMovedRedirections is 5. The default is to follow MOVED and ASK without end.
//   - DialCtxFn, if DialFn is nil too, connects through [redisstore.Dial]: the error of a wrong address says what answers
//     there, and [redisstore.Silent] names servers that do not answer. By default rueidis ends the process when a server
//     of another kind sends more replies than there were commands.
func Tune(opts rueidis.ClientOption) rueidis.ClientOption {
	set(&opts.ConnWriteTimeout, time.Second)
	set(&opts.Dialer.KeepAlive, 500*time.Millisecond)
	set(&opts.Dialer.Timeout, time.Second)
	set(&opts.Sentinel.Dialer.KeepAlive, opts.Dialer.KeepAlive)
	set(&opts.Sentinel.Dialer.Timeout, min(500*time.Millisecond, opts.Dialer.Timeout))
	set(&opts.Sentinel.TopologyRefreshInterval, 2*time.Second)
	set(&opts.ClusterOption.ShardsRefreshInterval, time.Second)
	set(&opts.ClusterOption.MaxMovedRedirections, 5)
	if opts.DialCtxFn == nil && opts.DialFn == nil {
		opts.DialCtxFn = dial
	}
	return opts
}

// set sets an option that is zero.
func set[T int | time.Duration](option *T, value T) {
	if *option == 0 {
		*option = value
	}
}

// dial connects as rueidis does by itself, through redisstore.Dial: rueidis ends the process when a server sends more
// replies than there were commands, as a server of another kind can.
func dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	connect := d.DialContext
	if config != nil {
		connect = (&tls.Dialer{NetDialer: d, Config: config}).DialContext
	}
	return redisstore.Dial(ctx, addr, func(ctx context.Context) (net.Conn, error) { return connect(ctx, "tcp", addr) })
}
