package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
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

// must returns a function that returns the value, or fails the test at once after an error: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, opts, limits...))(t)
}

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// go-redis reports a refused connection after five attempts, 100 ms apart, which is longer than a budget. The error of
// a call says so, or, of a client that is greeted or tuned, that the connection is refused. For a Cluster it has to be
// tuned: otherwise go-redis looks for the nodes for longer than the deadline, and its error has not arrived yet.
func TestTheErrorSaysThatNothingCouldConnect(t *testing.T) {
	lis := must(net.Listen("tcp", "127.0.0.1:0"))(t)
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
			guarded := must(failover.New(store, nil))(t)
			for name, s := range map[string]driver.Store{"a deadline": store, "failover": guarded} {
				l := newLimiter(t, s, nil, sash.PerMinute(1))
				most := 200 * time.Millisecond
				if name == "failover" { // which has a budget of its own
					most = time.Minute
				}
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				_, err := l.Allow(ctx, "k")
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
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t) // accepts, and never answers
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

// A subject whose key holds something else is left out, by every choice, on one server and apart. The error is that of the keys
// only if there is no other.
func TestAnyLeavesBadKeysOut(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaintNotificationsConfig: quiet})
	defer client.Close()
	store := goredisstore.New(client, nil)
	reserve := func(l *sash.Limiter, wait time.Duration, subjects ...sash.Subject) (int, bool, error) {
		r, err := l.Reserve(t.Context(), subjects[0].Key, subjects[0].Cost, &sash.ReserveOptions{WaitUpTo: wait, Any: subjects[1:]})
		if err != nil {
			return -1, false, err
		}
		return r.Chosen, r.Allowed(), nil
	}
	verbs := map[string]func(*sash.Limiter, ...sash.Subject) (int, bool, error){
		"AllowAny": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) {
			i, res, err := l.AllowAny(t.Context(), subjects...)
			return i, res.Allowed, err
		},
		"Reserve": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) { return reserve(l, 0, subjects...) },
		"Reserve, later": func(l *sash.Limiter, subjects ...sash.Subject) (int, bool, error) {
			return reserve(l, time.Second, subjects...)
		},
	}
	for name, over := range map[string]driver.Store{"one step": store, "apart": apart{store}} {
		for _, algorithm := range sash.Algorithms() {
			opts := &sash.Options{Algorithm: algorithm}
			if algorithm == sash.SlidingBuckets {
				opts.Resolution = time.Second
			}
			l := newLimiter(t, over, opts, sash.PerHour(2))
			for verb, decide := range verbs {
				for _, n := range []int{2, 11} {
					prefix := fmt.Sprint(name, algorithm, verb, n)
					all := make([]sash.Subject, n)
					for i := range all {
						all[i] = sash.Subject{Key: fmt.Sprint(prefix, i), Cost: 2}
					}
					foul := func(i int, as ...any) {
						if err := client.Do(t.Context(), append([]any{as[0], store.Key(all[i].Key, l.Policy())}, as[1:]...)...).Err(); err != nil {
							t.Fatal(err)
						}
					}
					foul(0, "LPUSH", "x")
					if n > 2 {
						foul(5, "SET", "foreign")
					}
					var got []int
					for range n {
						i, allowed, err := decide(l, all...)
						if errors.Is(err, driver.ErrUnsupported) {
							break
						}
						if err != nil || i == 0 || n > 2 && i == 5 {
							t.Fatalf("%s: %d, %v", prefix, i, err)
						}
						if allowed {
							got = append(got, i)
						}
					}
					if want := n - 1 - n/11; len(got) != want && len(got) > 0 {
						t.Errorf("%s: charged %v, want each of %d good ones once", prefix, got, want)
					}
					for i := range all {
						client.Del(t.Context(), store.Key(all[i].Key, l.Policy()))
						foul(i, "LPUSH", "x")
					}
					i, _, err := decide(l, all...)
					if says := fmt.Sprint(err); i != -1 || !errors.Is(err, driver.ErrUnsupported) &&
						(!errors.Is(err, driver.ErrRejected) || !strings.Contains(says, "none of") || strings.Contains(says, "unavailable")) {
						t.Errorf("%s: with bad keys alone %d, %v", prefix, i, err)
					}
				}
			}
		}
	}
}

// apart is a store that does not choose in one step.
type apart struct{ *redisstore.Store }

func (s apart) Do(ctx context.Context, b *driver.Batch) error {
	if b.Mode == driver.Any {
		return driver.ErrApart
	}
	return s.Store.Do(ctx, b)
}

// A scripts counts the calls of scripts.
type scripts struct{ calls atomic.Int64 }

func (s *scripts) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *scripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s *scripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			s.calls.Add(1)
		}
		return next(ctx, cmd)
	}
}

// Three subjects are settled by one script, also through failover, and each by its own in different slots of a Cluster. The one
// whose key holds something else is an error, and the others are settled.
func TestSettleAllIsOneScript(t *testing.T) {
	counted := &scripts{}
	one := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), MaintNotificationsConfig: quiet})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.StartCluster(t, redistest.ClusterOptions{}).Addrs(), MaintNotificationsConfig: quiet,
	})
	for client, calls := range map[redis.UniversalClient]int64{one: 1, cluster: 3} {
		defer client.Close()
		client.AddHook(counted)
		store := goredisstore.New(client, nil)
		guarded := must(failover.New(store, &failover.Options{Budget: time.Minute}))(t)
		for _, s := range []driver.Store{store, guarded} {
			l := newLimiter(t, s, nil, sash.PerHour(100))
			subjects := []sash.Subject{{Key: fmt.Sprintf("a%T", s), Cost: 10}, {Key: fmt.Sprintf("b%T", s), Cost: 10}, {Key: fmt.Sprintf("c%T", s), Cost: 10}}
			for _, broken := range []bool{false, true} {
				all := must(l.Reserve(t.Context(), subjects[0].Key, 10, &sash.ReserveOptions{All: subjects[1:]}))(t)
				if broken {
					client.Set(t.Context(), store.Key(subjects[1].Key, l.Policy()), "something else, and long enough to be a header of a log", 0)
				}
				before := counted.calls.Load()
				if err := all.Settle(t.Context(), 1, 2, 3); (err != nil) != broken {
					t.Errorf("%T, a foreign key %v: %v", s, broken, err)
				}
				if n := counted.calls.Load() - before; n != calls {
					t.Errorf("%T, a foreign key %v: %d scripts, want %d", s, broken, n, calls)
				}
				for i, left := range map[int]int64{0: 99, 2: 97} {
					want := left
					if broken {
						want = 2*left - 100
					}
					if res, err := l.Peek(t.Context(), subjects[i].Key); err != nil || res.Remaining != want {
						t.Errorf("%T, a foreign key %v: %d has %d left, want %d, %v", s, broken, i, res.Remaining, want, err)
					}
				}
			}
		}
	}
}
