package goredisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/redisstore"
)

// A dialer is the field Dialer of a client's options.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// greeting sets a dialer that is nil to one that connects as go-redis does, and then checks that a Redis answers. It
// reads the other options when it connects, because they can be set after Tune.
func greeting(field *dialer, timeout *time.Duration, config **tls.Config) {
	if *field != nil {
		return
	}
	*field = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		conn, err := redis.NewDialer(&redis.Options{DialTimeout: *timeout, TLSConfig: *config})(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := redisstore.Greet(ctx, conn); err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
		}
		return conn, nil
	}
}
