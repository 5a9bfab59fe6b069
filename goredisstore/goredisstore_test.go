package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// quiet asks for no notifications, as New says: some of these tests wait for replicas.
var quiet = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// go-redis reports a refused connection after five attempts, 100 ms apart, which is longer than a budget. The error of
// a call says so, or, of a client that is greeted or tuned, that the connection is refused. For a Cluster it has to be
// tuned: otherwise go-redis looks for the nodes for longer than the deadline, and its error has not arrived yet.
func TestTheErrorSaysThatNothingCouldConnect(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	_ = lis.Close()
	const patient = "has no connection to "
	const retries = "5 attempts to connect (DialerRetries)"
	for _, c := range []struct {
		name                   string
		cluster, tuned, greets bool
		says                   string
	}{
		{"the defaults", false, false, false, retries},
		{"greeted", false, false, true, "connection refused"},
		{"tuned", false, true, false, "connection refused"},
		{"both", false, true, true, "connection refused"},
		{"a Cluster, tuned", true, true, false, "connection refused"},
		{"a Cluster, both", true, true, true, "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts, all := &redis.Options{Addr: addr}, &redis.ClusterOptions{Addrs: []string{addr}}
			if c.tuned {
				goredisstore.Tune(opts)
				goredisstore.Tune(all)
			}
			client := redis.UniversalClient(redis.NewClient(opts))
			if c.cluster {
				client = redis.NewClusterClient(all)
			}
			defer client.Close()
			if c.greets {
				goredisstore.Greet(client)
			}
			store := goredisstore.New(client, nil)
			guarded, err := failover.New(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]driver.Store{"a deadline": store, "failover": guarded} {
				l := newLimiter(t, s, nil, sash.PerMinute(1))
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				_, err = l.Allow(ctx, "k")
				t.Logf("%s: %v", name, err)
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), addr) {
					t.Errorf("%s: %v, want %q", name, err, c.says)
				}
				if c.says == retries && !strings.Contains(err.Error(), patient+addr) {
					t.Errorf("%s: %v, want %q", name, err, patient+addr)
				}
				if name == "failover" && !errors.Is(err, sash.ErrUnavailable) {
					t.Errorf("%s: %v is not ErrUnavailable", name, err)
				}
			}
		})
	}
}

// Without a replica an admission is not confirmed: the call is charged, and an error, whether or not the client heeds the
// deadlines of contexts.
func TestAnAdmissionWaitsForReplicas(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for _, heeds := range []bool{true, false} {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: heeds, MaintNotificationsConfig: quiet})
		defer client.Close()
		l := newLimiter(t, goredisstore.New(client, &redisstore.Options{Replicas: 1}), nil, sash.PerHour(5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		key := fmt.Sprint("heeds ", heeds)
		if _, err := l.Allow(ctx, key); !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s: %v", key, err)
		}
		if res, err := l.Peek(ctx, key); err != nil || res.Remaining != 4 {
			t.Errorf("%s: %d left, %v", key, res.Remaining, err)
		}
	}
}

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
