package faulttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// follows waits until a replica of a primary confirms two writes in a row. What it confirms first may have come with the
// whole of the data, after which Valkey may send it nothing for more than half a second.
func follows(t *testing.T, primary *redistest.Server) {
	t.Helper()
	confirmed := 0
	await(t, "the replica confirms two writes", func() bool {
		primary.Must(t, "SET", "follows", "x", "PX", "1")
		confirmed++
		if n, err := primary.Do("WAIT", "1", "100"); err != nil || n != int64(1) {
			confirmed = 0
		}
		return confirmed == 2
	})
}

// isShort fails the test if an error does not say that a call was charged and confirmed by no replica.
func isShort(t *testing.T, err error) {
	t.Helper()
	if text := fmt.Sprint(err); !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(text, "charged") || !strings.Contains(text, "0 of 1 replicas") {
		t.Errorf("%v, want a shortfall of replicas", err)
	}
}

func testReplicas(t *testing.T, a adapter) {
	primary, r := redistest.Start(t), newRelay(t)
	r.serve(primary.Addr())
	replica := redistest.StartReplica(t, primary.Addr())
	follows(t, primary)
	const timeout = 300 * time.Millisecond
	confirmed := func(addr string) connection {
		at := plain(addr)
		at.options = &redisstore.Options{Replicas: 1, ReplicaTimeout: timeout}
		return a.dial(t, at)
	}
	conn := confirmed(r.addr())
	l, look := limiter(t, conn, ten), limiter(t, a.dial(t, plain(primary.Addr())), ten)
	for i, missing := range []bool{true, false, true} { // with and without the script on the server
		if missing {
			primary.Must(t, "SCRIPT", "FLUSH")
		}
		r.forget()
		res, err := l.Allow(minute(t), "k")
		if err != nil || !res.Allowed || res.Remaining != int64(9-i) || r.sent("WAIT") != 1 {
			t.Errorf("%+v, %v after %d WAIT", res, err, r.sent("WAIT"))
		}
		name := redisKey(t, conn.Store, "k")
		if got, want := replica.Must(t, "GET", name), primary.Must(t, "GET", name); got != want {
			t.Errorf("the replica has %q of the charge %q", got, want)
		}
	}

	replica.Pause()
	begin := time.Now()
	_, err := l.AllowN(minute(t), "k", 2)
	isShort(t, err)
	if took := time.Since(begin); took < timeout {
		t.Errorf("it waited for %v, want %v", took, timeout)
	}
	wantUsed(t, look, "k", 5)
	r.forget()
	if res, err := l.AllowN(minute(t), "k", 6); err != nil || res.Allowed {
		t.Errorf("a refusal: %+v, %v", res, err)
	}
	wantUsed(t, l, "k", 5)
	if r.sent("WAIT") != 0 {
		t.Error("a call that wrote nothing waited for replicas")
	}
	// A repetition charges nothing, even on another connection, and still waits for the first charge.
	for range 3 {
		_, err := limiter(t, confirmed(primary.Addr()), ten).AllowOnce(minute(t), "id", "once", 4)
		isShort(t, err)
	}
	wantUsed(t, look, "once", 4)
	replica.Resume()
	follows(t, primary)
	if res, err := l.AllowOnce(minute(t), "id", "once", 4); err != nil || !res.Allowed || res.Remaining != 6 {
		t.Errorf("the replica is back: %+v, %v", res, err)
	}
	wantUsed(t, look, "once", 4)

	r.isLost(t, cut, func() error { _, err := l.Allow(context.Background(), "k"); return err })
	conn.isUsable(t)
	wantUsed(t, look, "k", 6)
	r.lose(drop, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // enough to send it, also on a busy machine
	defer cancel()
	if res, err := l.Allow(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || res.Allowed {
		t.Errorf("past its deadline: %+v, %v", res, err)
	}
	r.heal()
	conn.isUsable(t)
	wantUsed(t, look, "k", 7)
}

// testCluster has two primaries, each with half of the slots, which clients reach through a relay.
func testCluster(t *testing.T, a adapter) {
	var relays [2]*relay
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Primaries: len(relays), Args: func(node int) []string {
		relays[node] = newRelay(t)
		_, port, _ := net.SplitHostPort(relays[node].addr())
		return []string{"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port}
	}})
	for i, s := range cluster.Primaries {
		relays[i].serve(s.Addr())
	}
	scripts := func() int { return relays[0].scripts() + relays[1].scripts() }
	at := plain(relays[0].addr())
	at.cluster = true
	conn := a.dial(t, at)
	l := limiter(t, conn, ten)
	here, there := subjectsOn(t, cluster, conn.Store, 0, 1)[0], subjectsOn(t, cluster, conn.Store, 1, 1)[0]

	t.Run("subjects of two servers are charged one by one", func(t *testing.T) {
		res, err := l.AllowAll(minute(t), sash.Subject{Key: here, Cost: 1}, sash.Subject{Key: there, Cost: 2})
		if err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err = l.AllowAll(minute(t), sash.Subject{Key: here, Cost: 1}, sash.Subject{Key: there, Cost: 9})
		if err != nil || res.Allowed {
			t.Errorf("9 of 8: %+v, %v", res, err)
		}
		wantUsed(t, l, here, 1)
		wantUsed(t, l, there, 2)
	})
	t.Run("subjects of one slot are decided in one command", func(t *testing.T) {
		relays[0].forget()
		relays[1].forget()
		one, two := sash.Subject{Key: sash.KeyTogether("t", "a"), Cost: 1}, sash.Subject{Key: sash.KeyTogether("t", "b"), Cost: 2}
		res, err := l.AllowAll(minute(t), one, two)
		if err != nil || !res.Allowed || scripts() != 1 {
			t.Errorf("%d scripts sent: %+v, %v", scripts(), res, err)
		}
	})
	t.Run("a key may have any braces", func(t *testing.T) {
		for _, key := range []string{sash.Key("key"), sash.KeyTogether("t", "key"), "se{tt}led", "se{tt}}", "se}{}ttled", "{", "}{"} {
			r := must(l.Reserve(minute(t), key, 5, nil))(t)
			if err := r.Settle(minute(t), 2); err != nil {
				t.Errorf("%q: %v", key, err)
			}
			for range 2 {
				if res, err := l.AllowOnce(minute(t), "id", key, 3); err != nil || !res.Allowed || res.Remaining != 5 {
					t.Errorf("%q: %+v, %v", key, res, err)
				}
			}
			wantUsed(t, l, key, 5)
		}
	})
	t.Run("an admission waits for replicas of its own server", func(t *testing.T) {
		at := at
		at.options = &redisstore.Options{Replicas: 1, ReplicaTimeout: 20 * time.Millisecond}
		conn := a.dial(t, at)
		for node := range relays { // neither has one
			key := subjectsOn(t, cluster, conn.Store, node, 2)[1]
			_, err := limiter(t, conn, ten).Allow(minute(t), key)
			isShort(t, err)
			wantUsed(t, l, key, 1)
		}
	})
	t.Run("a lost reply is charged at most once", func(t *testing.T) {
		at := at
		at.patience = 500 * time.Millisecond
		l := limiter(t, a.dial(t, at), ten)
		before := used(t, l, there)
		must(l.Allow(context.Background(), there))(t)
		relays[0].forget()
		relays[1].isLost(t, drop, func() error { _, err := l.Allow(context.Background(), there); return err })
		if relays[0].scripts() != 0 {
			t.Error("the script was sent to another node, too")
		}
		wantUsed(t, l, there, before+2)
	})
}
