package degrade

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/servertest"
)

// A report counts the requests that nothing counted from the first failure of an outage on, before the breaker noticed,
// and keeps the number when Redis is back; what failed long before is not part of it.
func TestAReportCountsWhatAnOutageLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := &scripts{err: errors.New("LOADING Redis is loading the dataset in memory")}
		let := int64(7) // before
		g := servertest.Must(New(redisstore.New(redis, nil), Options{Address: "redis.example:6379", Uncounted: func() int64 { return let }}))(t)
		open := servertest.Must(g.Store.With(failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}))(t)
		l := limiterOf(t, open, sash.PerMinute(10))
		ask := func() {
			if res, err := l.Allow(t.Context(), "k"); err == nil && res.Source == sash.FromPolicy {
				let++
			}
		}
		ask() // one failure, which takes nothing down
		time.Sleep(time.Minute)
		if r := g.Report(); r.Status != "ok" || r.Err != nil || r.Uncounted != 0 || !r.Since.IsZero() || r.Address != "redis.example:6379" {
			t.Fatalf("up: %+v", r)
		}
		for range 100 {
			ask()
			time.Sleep(10 * time.Millisecond)
		}
		r := g.Report()
		if r.Status != "degraded" || r.Cause != "loading" || !errors.Is(r.Err, g.outages.why) || r.Uncounted != 100 || time.Since(r.Since) > time.Second {
			t.Errorf("down: %+v", r)
		}
		redis.err = nil // it answers that the key is wrong
		for range 100 {
			ask()
			time.Sleep(100 * time.Millisecond)
		}
		during := let - 8
		let += 5
		if r := g.Report(); r.Status != "ok" || r.Err != nil || r.Uncounted != during || time.Since(r.Since) > 10*time.Second || r.Since.IsZero() {
			t.Errorf("up again, after %d: %+v", during, r)
		}
	})
}

// remedies are words of what the error of a command says to do.
var remedies = map[string]string{
	"budget": "a firewall", "refused": "is the server running", "lost": "that is rediss://", "auth": "redis://user:password@", "tls": "TLS handshake",
}

// Every fault of a real server is counted under its cause, and an operator reads what to do.
func TestFaultsHaveTheirCause(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	run := func(commands ...[]string) func(*testing.T) string {
		return func(t *testing.T) string {
			server := redistest.Start(t)
			for _, command := range commands {
				server.Must(t, command...)
			}
			return "redis://" + server.Addr()
		}
	}
	for _, c := range []struct {
		cause string
		url   func(*testing.T) string
	}{
		{"budget", func(t *testing.T) string {
			server := redistest.Start(t)
			server.Pause()
			t.Cleanup(server.Resume)
			return "redis://" + server.Addr()
		}},
		{"refused", func(t *testing.T) string {
			server := redistest.Start(t)
			server.Stop()
			return "redis://" + server.Addr()
		}},
		{"protocol", func(*testing.T) string { return "redis://" + web.Listener.Addr().String() }},
		{"tls", func(t *testing.T) string {
			secure, _ := redistest.StartTLS(t)
			return "rediss://" + secure.Addr() // with a certificate that nobody trusts
		}},
		// If only one side uses TLS, Redis says nothing: it ends the connection, or waits for more.
		{"lost", func(t *testing.T) string {
			secure, _ := redistest.StartTLS(t)
			return "redis://" + secure.Addr()
		}},
		{"budget", func(t *testing.T) string { return "rediss://" + redistest.Start(t).Addr() }},
		{"auth", func(t *testing.T) string { return "redis://" + redistest.Start(t, "--requirepass", "secret").Addr() }},
		{"auth", run([]string{"ACL", "SETUSER", "default", "-evalsha", "-eval"})},
		{"readonly", run([]string{"REPLICAOF", "127.0.0.1", "1"})},
		{"replicas", run([]string{"CONFIG", "SET", "min-replicas-to-write", "1"})},
		{"memory", run([]string{"CONFIG", "SET", "maxmemory", "1"})},
		{"cluster", func(t *testing.T) string { return "redis://" + redistest.Start(t, "--cluster-enabled", "yes").Addr() }},
		{"misconfigured", func(t *testing.T) string {
			return "redis://" + redistest.Start(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "").Addr()
		}},
		{"rejected", run([]string{"LPUSH", "sash:log3:k", "x"})},
		{"script", func(t *testing.T) string {
			server := redistest.Start(t, "--lua-time-limit", "5")
			go func() { _, _ = redistest.Dial(server.Addr()).Do("EVAL", "while true do end", "0") }()
			for busy := false; !busy; {
				_, err := server.Do("PING")
				busy = err != nil
			}
			t.Cleanup(func() { server.Must(t, "SCRIPT", "KILL") })
			return "redis://" + server.Addr()
		}},
	} {
		t.Run(c.cause, func(t *testing.T) {
			at, budget := c.url(t), time.Minute
			if c.cause == "budget" {
				budget = 50 * time.Millisecond
			} else { // on a busy machine a handshake takes longer than the second that is the default
				at += "?dial_timeout=1m&read_timeout=1m"
			}
			client := clientOf(t, at)
			var failures []error
			g := servertest.Must(New(client.Detached(nil), Options{
				Budget: budget, Instances: 1, Log: quiet, Failed: func(err error) { failures = append(failures, err) },
			}))(t)
			err := ask(t, g, 1)
			if do := remedies[c.cause]; !strings.Contains(cause.Remedy(failures[0]).Error(), do) {
				t.Errorf("%v: to do: %v, want %q", c.cause, cause.Remedy(failures[0]), do)
			}
			if !errors.Is(err, sash.ErrUnavailable) || len(failures) != 1 || cause.Of(failures[0]) != c.cause || cause.Of(err) != c.cause {
				t.Errorf("%v is %q; counted: %v", err, cause.Of(err), failures)
			}
		})
	}
}

func TestMain(m *testing.M) { servertest.NoLeak(m) }

// scripts is a Redis that does what a test says.
type scripts struct {
	err error

	mu    sync.Mutex
	hangs bool // guarded by mu: it answers nothing, and otherwise that a key is wrong
}

func (s *scripts) hang(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func (s *scripts) Run(ctx context.Context, _ *redisstore.Script, _ []string, _ string) (string, error) {
	s.mu.Lock()
	hangs := s.hangs
	s.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return "", ctx.Err()
	case s.err == nil:
		return "", driver.ErrRejected
	}
	return "", s.err
}
func (s *scripts) Cluster() bool { return false }

// guardOf returns a guard before a Redis that fails, and what it logs.
func guardOf(t *testing.T, s *scripts) (*Guard, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	g := servertest.Must(New(redisstore.New(s, nil), Options{Instances: 2, Log: slog.New(slog.NewTextHandler(&out, nil))}))(t)
	return g, &out
}

func limiterOf(t *testing.T, store driver.Store, limit sash.Limit) *sash.Limiter {
	t.Helper()
	return servertest.Must(sash.New(store, nil, limit))(t)
}

// clientOf returns a client that is closed at the end of the test.
func clientOf(t *testing.T, url string) *redisclient.Client {
	t.Helper()
	client := servertest.Must(redisclient.New(url))(t)
	t.Cleanup(client.Close)
	return client
}

func ask(t *testing.T, g *Guard, calls int) (last error) {
	t.Helper()
	l := limiterOf(t, g.Store, sash.PerMinute(10))
	for range calls {
		_, last = l.Allow(t.Context(), "k")
	}
	return last
}

// A failure that needs an operator is logged as an error, now and then; others when they begin and end.
func TestWhatIsLogged(t *testing.T) {
	for err, loud := range map[error]bool{
		errors.New("NOAUTH authentication required"):                                   true,
		errors.New("NOPERM this user has no permissions to run the 'evalsha' command"): true,
		syscall.ECONNRESET: false,
	} {
		t.Run(err.Error()[:6], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, out := guardOf(t, &scripts{err: err})
				for range 60 { // a minute
					ask(t, g, 20)
					time.Sleep(time.Second)
				}
				errs, warnings := strings.Count(out.String(), "level=ERROR"), strings.Count(out.String(), "level=WARN")
				if wanted := map[bool][2]int{true: {4, 6}, false: {0, 0}}[loud]; errs < wanted[0] || errs > wanted[1] {
					t.Errorf("%d errors were logged, want %d to %d:\n%s", errs, wanted[0], wanted[1], out)
				}
				if warnings != 1 || !strings.Contains(out.String(), err.Error()) {
					t.Errorf("%d warnings were logged, want the one that it is down:\n%s", warnings, out)
				}
			})
		})
	}
}

// A service that ends says how many units Redis will never count.
func TestTheLogSaysWhatIsLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, out := guardOf(t, &scripts{err: errors.New("LOADING Redis is loading the dataset in memory")})
		store := servertest.Must(g.Store.With(failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}}))(t)
		l := limiterOf(t, store, sash.PerHour(100))
		if res, err := l.AllowN(t.Context(), "k", 7); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
		began := time.Now()
		g.Close()
		if took := time.Since(began); took > closing+failover.DefaultBudget || !strings.Contains(out.String(), "written=0 lost=7 doubtful=0") {
			t.Errorf("after %v:\n%s", took, out)
		}
		logged := out.Len()
		g.Close()
		if out.Len() != logged {
			t.Errorf("nothing was waiting:\n%s", out)
		}
	})
}
