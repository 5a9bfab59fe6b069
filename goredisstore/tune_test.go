package goredisstore_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
	"example.com/sash/redisstore"
)

// Options that Tune has set can be copied, and the copy changed: what the client sends is TLS if the copy says so.
func TestCopiesOfTunedOptionsKeepTheirTLS(t *testing.T) {
	addr, first := startRecorder(t)
	config := &tls.Config{InsecureSkipVerify: true}
	for _, c := range []struct {
		name   string
		client func() redis.UniversalClient
	}{
		{"Options", func() redis.UniversalClient {
			o := *goredisstore.Tune(&redis.Options{Addr: addr, Password: "secret", MaxRetries: -1})
			o.TLSConfig = config
			return redis.NewClient(&o)
		}},
		{"FailoverOptions", func() redis.UniversalClient {
			o := *goredisstore.Tune(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr}, SentinelPassword: "secret", MaxRetries: -1})
			o.TLSConfig = config
			return redis.NewFailoverClient(&o)
		}},
		{"ClusterOptions", func() redis.UniversalClient {
			o := *goredisstore.Tune(&redis.ClusterOptions{Addrs: []string{addr}, Password: "secret", MaxRedirects: -1})
			o.TLSConfig = config
			return redis.NewClusterClient(&o)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, greets := range []bool{false, true} {
				client := c.client()
				if greets {
					goredisstore.Greet(client)
				}
				_ = client.Ping(t.Context())
				client.Close()
				for none := false; !none; {
					select {
					case b := <-first:
						if b[0] != 0x16 { // a handshake
							t.Errorf("greets: %v: it sent %q without TLS", greets, b)
						}
					default:
						none = true
					}
				}
			}
		})
	}
}

// startRecorder starts a server that ends every connection after its first bytes, and returns those.
func startRecorder(t *testing.T) (addr string, first <-chan []byte) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan []byte, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 16)
			if n, _ := conn.Read(b); n > 0 {
				said <- b[:n]
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String(), said
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
