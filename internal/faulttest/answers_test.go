package faulttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// ten is the limit of the tests that count single calls.
var ten = sash.PerDay(10)

// What makes a client a redisstore.Scripter, with its defaults: each adapter decides; sends a script's text only if the server
// does not have it; never repeats a script that may have run; returns errors of the right kind; and leaves the client usable.
func TestAdapters(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for _, test := range []struct {
			name string
			run  func(*testing.T, adapter)
		}{
			{"few rights and TLS are enough", testFewRights},
			{"a missing script is sent once, and again after a flush", testNoScript},
			{"a lost reply is charged at most once", testLostReply},
			{"a settlement whose reply is lost is applied once", testLostSettlement},
			{"a call whose reply is lost is repeated with its ID", testLostOnce},
			{"an admission waits for replicas", testReplicas},
			{"the end of a context is the context's error", testContexts},
			{"a server that is down is an unavailable store, and decides again", testDown},
			{"a refusal by the server is classified", testRefusals},
			{"a missing permission after a write is charged", testLatePermission},
			{"a missing permission for WAIT leaves the charge", testWaitPermission},
			{"a cluster is followed, one slot in each command", testCluster},
		} {
			t.Run(test.name, func(t *testing.T) { test.run(t, a) })
		}
	})
}

// plain is a server at an address, for a client with its defaults.
func plain(addr string) target { return target{addrs: []string{addr}, plain: true} }

// relayed connects a client to a new server through a relay. The second connection bypasses it.
func relayed(t *testing.T, a adapter, patience time.Duration) (conn, direct connection, r *relay, server *redistest.Server) {
	t.Helper()
	server, r = redistest.Start(t), newRelay(t)
	r.serve(server.Addr())
	at := plain(r.addr())
	at.patience = patience
	return a.dial(t, at), a.dial(t, plain(server.Addr())), r, server
}

// minute returns a context that ends only if a call hangs.
func minute(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// isUsable fails the test if the client is no longer usable. The first pings may fail, on connections that broke.
func (c connection) isUsable(t *testing.T) {
	t.Helper()
	var err error
	for range 5 {
		if err = c.ping(); err == nil {
			return
		}
	}
	t.Errorf("the client is no longer usable: %v", err)
}

// decides runs every script.
func (c connection) decides(t *testing.T) {
	t.Helper()
	for _, algorithm := range sash.Algorithms() {
		const key = "a\x00\r\n\xff" // not valid in any text encoding
		ctx, l := minute(t), limiterWith(t, c, algorithm, ten)
		if res, err := l.AllowN(ctx, key, 7); err != nil || !res.Allowed || res.Remaining != 3 {
			t.Errorf("%v: 7 of 10: %+v, %v", algorithm, res, err)
			continue
		}
		if res, err := l.AllowN(ctx, key, 4); err != nil || res.Allowed || res.RetryAfter <= 0 || res.RetryAfter > 48*time.Hour {
			t.Errorf("%v: 4 of 3: %+v, %v", algorithm, res, err)
		}
		wantUsed(t, l, key, 7)
		if err := l.Reset(ctx, key); err != nil {
			t.Errorf("%v: reset: %v", algorithm, err)
		}
		wantUsed(t, l, key, 0)
		r, err := l.Reserve(ctx, key, 4, nil)
		if err == nil {
			err = r.Settle(ctx, 2)
		}
		if res, failed := l.AllowN(ctx, key, 10); err != nil || failed != nil || res.Allowed {
			t.Errorf("%v: 10 of 8: %v, %v, %v", algorithm, res.Allowed, err, failed)
		}
	}
}

func wantUsed(t *testing.T, l *sash.Limiter, key string, want int64) {
	t.Helper()
	if got := used(t, l, key); got != want {
		t.Errorf("%q: %d units are charged, want %d", key, got, want)
	}
}

// leastRights is all that a user has to be allowed: to run scripts, and what they call.
var leastRights = []string{
	"~sash:*", "-@all", "+hello", "+ping", "+evalsha", "+eval", "+time",
	"+getrange", "+strlen", "+set", "+setrange", "+exists", "+del", "+unlink", "+pexpire", "+pttl",
	"+zadd", "+zcard", "+zcount", "+zrange", "+zrangebyscore", "+zrank",
	"+zrem", "+zremrangebyrank", "+zremrangebyscore",
}

// A user of few rights decides as any other, over TLS too.
func testFewRights(t *testing.T, a adapter) {
	server, config := redistest.StartTLS(t)
	server.Must(t, append([]string{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}, leastRights...)...)
	a.dial(t, target{addrs: []string{server.Addr()}, tls: config, user: "limiter", password: "secret", patience: time.Minute}).decides(t)
}

func testNoScript(t *testing.T, a adapter) {
	conn, _, r, server := relayed(t, a, 0)
	l := limiter(t, conn, ten)
	for i, step := range []struct {
		name          string
		flush         bool
		evalsha, eval int
	}{
		{"the first call", false, 1, 1},
		{"the second call", false, 1, 0},
		{"the call after a flush", true, 1, 1},
		{"the call after that", false, 1, 0},
	} {
		if step.flush {
			server.Must(t, "SCRIPT", "FLUSH")
		}
		r.forget()
		if res, err := l.Allow(minute(t), "k"); err != nil || !res.Allowed || res.Remaining != int64(9-i) {
			t.Errorf("%s: %+v, %v", step.name, res, err)
		}
		if sha, text := r.sent("EVALSHA"), r.sent("EVAL"); sha != step.evalsha || text != step.eval {
			t.Errorf("%s sent %d EVALSHA and %d EVAL, want %d and %d", step.name, sha, text, step.evalsha, step.eval)
		}
	}
}

// losses are the ways in which a client may lose a reply.
var losses = []struct {
	name     string
	loss     loss
	patience time.Duration
}{
	{"it arrives after the client's timeout", drop, 500 * time.Millisecond},
	{"the connection breaks", cut, 0},
}

// isLost makes a call whose reply is lost, and fails the test if it is not an unavailable store, or if its script was sent more
// than once. The call's context has no end, so that only the client's timeout ends it.
func (r *relay) isLost(t *testing.T, how loss, call func() error) {
	t.Helper()
	r.forget()
	r.lose(how, nil)
	if err := call(); !errors.Is(err, sash.ErrUnavailable) || r.scripts() != 1 {
		t.Errorf("%v after %d scripts, want an unavailable store after one", err, r.scripts())
	}
	r.heal()
}

func testLostReply(t *testing.T, a adapter) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, r, _ := relayed(t, a, c.patience)
			l := limiter(t, conn, ten)
			must(l.Allow(context.Background(), "k"))(t)
			r.isLost(t, c.loss, func() error { _, err := l.Allow(context.Background(), "k"); return err })
			wantUsed(t, limiter(t, direct, ten), "k", 2)
			conn.isUsable(t)
		})
	}
}

// Unlike a decision, a settlement may be repeated after an error: the store knows it by its ID.
func testLostSettlement(t *testing.T, a adapter) {
	conn, direct, r, _ := relayed(t, a, 0)
	l, look := limiter(t, conn, ten), limiter(t, direct, ten)
	for _, actual := range []int64{3, 2, 0, 7} { // the first makes the server know the script
		check(t, l.Reset(minute(t), "k"))
		hold := must(l.Reserve(minute(t), "k", 5, nil))(t)
		if actual != 3 {
			r.isLost(t, cut, func() error { return hold.Settle(minute(t), actual) })
			conn.isUsable(t)
		}
		for range 2 {
			check(t, hold.Settle(minute(t), actual))
		}
		wantUsed(t, look, "k", actual)
	}
}

// A call with an ID may be repeated after its reply was lost. The server then runs it twice and charges it
// once, and every repetition is admitted.
func testLostOnce(t *testing.T, a adapter) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, r, _ := relayed(t, a, c.patience)
			for _, algorithm := range sash.Algorithms() {
				l, look := limiterWith(t, conn, algorithm, ten), limiterWith(t, direct, algorithm, ten)
				must(look.AllowOnce(minute(t), "before", "other", 1))(t) // the server knows the script
				once := func() (sash.Result, error) { return l.AllowOnce(context.Background(), "id", "k", 4) }
				r.isLost(t, c.loss, func() error { _, err := once(); return err })
				conn.isUsable(t)
				wantUsed(t, look, "k", 4)
				first, err := once()
				again, err2 := once()
				for _, res := range []sash.Result{first, again} {
					if err := errors.Join(err, err2); err != nil || !res.Allowed || res.Remaining != 6 || !res.At.Equal(first.At) {
						t.Errorf("%v: repeated, it got %+v after %+v, %v", algorithm, res, first, err)
					}
				}
				wantUsed(t, look, "k", 4)
			}
		})
	}
}

func testContexts(t *testing.T, a adapter) {
	for _, c := range []struct {
		name     string
		before   bool          // it is cancelled before the call
		lasts    time.Duration // and otherwise cancelled while it waits, or ends then
		patience time.Duration
		want     error
	}{
		{"cancelled before", true, never, 0, context.Canceled},
		{"cancelled while waiting", false, never, time.Second, context.Canceled}, // a client may notice only once it stops waiting
		// The client would wait for longer than this test may take.
		{"past its deadline while waiting", false, 100 * time.Millisecond, time.Minute, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, r, _ := relayed(t, a, c.patience)
			l := limiter(t, conn, ten)
			must(l.Allow(context.Background(), "k"))(t)
			ctx, cancel := context.WithTimeout(context.Background(), c.lasts)
			defer cancel()
			r.forget()
			switch {
			case c.before:
				cancel()
			case c.want == context.Canceled:
				r.lose(drop, cancel)
			default:
				r.lose(drop, nil)
			}
			begin := time.Now()
			res, err := l.Allow(ctx, "k")
			if !errors.Is(err, c.want) || errors.Is(err, sash.ErrUnavailable) || res.Allowed || time.Since(begin) > 30*time.Second {
				t.Errorf("after %v: %+v, %v, want %v", time.Since(begin), res, err, c.want)
			}
			if c.before && r.scripts() != 0 {
				t.Errorf("%d scripts were sent", r.scripts())
			}
			r.heal()
			if n := used(t, limiter(t, direct, ten), "k"); n > 2 {
				t.Errorf("%d units are charged after two calls", n)
			}
			conn.isUsable(t)
		})
	}
}

// After a server came back, calls on connections that broke may fail, and may be charged at most once.
func testDown(t *testing.T, a adapter) {
	server := redistest.Start(t)
	conn := a.dial(t, plain(server.Addr()))
	l := limiter(t, conn, ten)
	server.Stop()
	res, err := l.Allow(context.Background(), "k")
	if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
		t.Errorf("got %+v, %v, want an unavailable store", res, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is a context's error, but no context ended", err)
	}
	server.Restart()
	conn.isUsable(t)
	for failed := int64(0); ; failed++ {
		res, err := l.Allow(minute(t), "k")
		if err == nil {
			if !res.Allowed || res.Remaining > 9 || res.Remaining < 9-failed {
				t.Errorf("%d left on the new server after %d failed calls: %+v", res.Remaining, failed, res)
			}
			return
		}
		if !errors.Is(err, sash.ErrUnavailable) || failed == 5 {
			t.Fatalf("after the server came back: %v", err)
		}
	}
}
