package adapters

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// startReplica starts a replica and waits until it follows.
func startReplica(t *testing.T, primary *redistest.Server) *redistest.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host, port)
	follows(t, primary)
	return replica
}

// follows waits until a replica of a primary confirms two writes in a row. What it confirms first may have come with the
// whole of the data, after which Valkey may send it nothing for more than half a second.
func follows(t *testing.T, primary *redistest.Server) {
	t.Helper()
	confirmed := 0
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		primary.Must(t, "SET", "follows", "x", "PX", "1")
		if n, err := primary.Do("WAIT", "1", "100"); err != nil || n != int64(1) {
			confirmed = 0
		} else if confirmed++; confirmed == 2 {
			return
		}
	}
	t.Fatal("the replica does not follow")
}

func testReplicas(t *testing.T, open Open) {
	p := newProxy(t)
	primary := redistest.Start(t)
	p.serve(primary.Addr())
	replica := startReplica(t, primary)
	const timeout = 300 * time.Millisecond
	conn := connect(t, open, p.addr(), Options{Store: &redisstore.Options{Replicas: 1, ReplicaTimeout: timeout}})
	l := limiter(t, conn.Store)
	look := limiter(t, connect(t, open, primary.Addr(), Options{}).Store)
	left := func(key string, want int64) {
		t.Helper()
		if got := remaining(t, look, key); got != want {
			t.Errorf("%d of 10 are left, want %d", got, want)
		}
	}
	short := func(err error) {
		t.Helper()
		if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "charged") || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("got %v, want a shortfall of replicas", err)
		}
	}

	for i, missing := range []bool{true, false, true} { // with and without the script on the server
		if missing {
			primary.Must(t, "SCRIPT", "FLUSH")
		}
		p.forget()
		res, err := l.Allow(patient(t), "k")
		if err != nil || !res.Allowed || res.Remaining != int64(9-i) || p.sent("WAIT") != 1 {
			t.Errorf("%+v, %v after %d WAIT", res, err, p.sent("WAIT"))
		}
		want := primary.Must(t, "GET", conn.Store.Key("k", slidingLog))
		if got, err := replica.Do("GET", conn.Store.Key("k", slidingLog)); err != nil || got != want {
			t.Errorf("the replica has %q of the charge %q (%v)", got, want, err)
		}
	}

	replica.Pause()
	begin := time.Now()
	_, err := l.AllowN(patient(t), "k", 2)
	short(err)
	if took := time.Since(begin); took < timeout {
		t.Errorf("it waited for %v, want %v", took, timeout)
	}
	left("k", 5)
	p.forget()
	if res, err := l.AllowN(patient(t), "k", 6); err != nil || res.Allowed {
		t.Errorf("a refusal: %+v, %v", res, err)
	}
	if res, err := l.Peek(patient(t), "k"); err != nil || res.Remaining != 5 {
		t.Errorf("a peek: %+v, %v", res, err)
	}
	if p.sent("WAIT") != 0 {
		t.Error("a call that wrote nothing waited for replicas")
	}
	// A repetition charges nothing, even on another connection, and still waits for the first charge.
	for range 3 {
		again := connect(t, open, primary.Addr(), Options{Store: &redisstore.Options{Replicas: 1, ReplicaTimeout: timeout}})
		_, err := limiter(t, again.Store).AllowOnce(patient(t), "id", "once", 4)
		short(err)
	}
	left("once", 6)
	replica.Resume()
	follows(t, primary)
	if res, err := l.AllowOnce(patient(t), "id", "once", 4); err != nil || !res.Allowed || res.Remaining != 6 {
		t.Errorf("the replica is back: %+v, %v", res, err)
	}
	left("once", 6)

	p.forget()
	p.lose(cut, nil)
	if res, err := l.Allow(context.Background(), "k"); !errors.Is(err, sash.ErrUnavailable) || res.Allowed || p.scripts() != 1 {
		t.Errorf("a reply was lost: %+v, %v after %d scripts", res, err, p.scripts())
	}
	p.heal()
	usable(t, conn)
	left("k", 4)

	p.lose(drop, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if res, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
		t.Errorf("past its deadline: %+v, %v", res, err)
	}
	p.heal()
	usable(t, conn)
	left("k", 3)
}

// asksForReplicas reports whether a server applies min-replicas-to-write to scripts, as Redis does from 7.0 on.
func asksForReplicas(t *testing.T, server *redistest.Server) bool {
	t.Helper()
	return !strings.HasPrefix(server.Info(t, "server", "redis_version"), "6.")
}

func testMinReplicas(t *testing.T, open Open) {
	server := redistest.Start(t, "--min-replicas-to-write", "1")
	conn := connect(t, open, server.Addr(), Options{})
	if !asksForReplicas(t, server) {
		if res, err := limiter(t, conn.Store).Allow(patient(t), "k"); err != nil || !res.Allowed {
			t.Errorf("a server that does not apply the setting to scripts: %+v, %v", res, err)
		}
		return
	}
	for _, algorithm := range sash.Algorithms() {
		l := limiterBy(t, conn.Store, optionsOf(algorithm))
		for _, ask := range []func() (sash.Result, error){
			func() (sash.Result, error) { return l.Allow(patient(t), "k") },
			func() (sash.Result, error) { return l.AllowOnce(patient(t), "id", "k", 1) },
		} {
			res, err := ask()
			if !errors.Is(err, sash.ErrUnavailable) || res.Allowed || !strings.Contains(err.Error(), "NOREPLICAS") {
				t.Errorf("%v: %+v, %v", algorithm, res, err)
			}
		}
		if got := remaining(t, l, "k"); got != 10 {
			t.Errorf("%v: %d of 10 are left after calls that were not charged", algorithm, got)
		}
	}
	server.Must(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	if res, err := limiter(t, conn.Store).AllowOnce(patient(t), "id", "k", 1); err != nil || res.Remaining != 9 {
		t.Errorf("with enough replicas: %+v, %v", res, err)
	}
}
