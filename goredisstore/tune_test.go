package goredisstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
)

// Options behind Sentinels are tuned as others are, and what is set stays.
func TestTuneKeepsWhatIsSet(t *testing.T) {
	opts := goredisstore.Tune(&redis.FailoverOptions{ReadTimeout: time.Minute})
	if !opts.ContextTimeoutEnabled || opts.DialerRetries != 1 || opts.DialTimeout != time.Second || opts.ReadTimeout != time.Minute {
		t.Errorf("%+v", opts)
	}
	if set := goredisstore.Tune[redis.Options](nil); set.ReadTimeout != time.Second || set.MaintNotificationsConfig == nil {
		t.Errorf("%+v", set)
	}
}

// A greeting takes no longer than DialTimeout, and a server that does not answer it is named by its own address, also
// where go-redis knows it by none, as behind Sentinels.
func TestAServerThatDoesNotGreetIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	addr := listener.Addr().String()
	opts := &redis.Options{Addr: addr, DialTimeout: 100 * time.Millisecond, MaxRetries: -1}
	failover := *opts
	failover.Addr = "FailoverClient" // as go-redis names the primary that Sentinels report
	failover.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	for name, opts := range map[string]*redis.Options{"one server": opts, "Sentinels": &failover} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(goredisstore.Tune(opts))
			defer client.Close()
			goredisstore.Greet(client)
			start := time.Now()
			err := client.Ping(t.Context()).Err()
			if err == nil || time.Since(start) > 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			said := redisstore.Silent(50 * time.Millisecond)
			if !strings.Contains(said, addr+" has not answered") || strings.Contains(said, "FailoverClient") {
				t.Errorf("silent: %q, want %s", said, addr)
			}
		})
	}
}
