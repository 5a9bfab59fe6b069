package rueidisstore

import (
	"context"
	"crypto/tls"
	"net"

	"example.com/sash/redisstore"
)

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
