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

// dialing sets a dialer that is nil to one that connects as go-redis does, through redisstore.Dial. It reads the other
// options when it connects, because they can be set after Tune.
func dialing(field *dialer, timeout *time.Duration, config **tls.Config) {
	if *field != nil {
		return
	}
	*field = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		connect := redis.NewDialer(&redis.Options{DialTimeout: *timeout, TLSConfig: *config})
		return redisstore.Dial(ctx, addr, func(ctx context.Context) (net.Conn, error) { return connect(ctx, network, addr) })
	}
}
