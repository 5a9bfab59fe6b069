package adapters

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

// A cluster has two primaries. Each owns half of the slots, and clients reach it through a proxy.
type cluster struct {
	*redistest.Cluster
	proxies [2]*proxy
	ids     [2]string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.Cluster = redistest.StartCluster(t, redistest.ClusterOptions{
		Primaries: len(c.proxies),
		Args: func(node int) []string {
			c.proxies[node] = newProxy(t)
			_, port, err := net.SplitHostPort(c.proxies[node].addr())
			if err != nil {
				t.Fatal(err)
			}
			return []string{"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port}
		},
	})
	for i, s := range c.Primaries {
		c.proxies[i].serve(s.Addr())
		c.ids[i] = s.ID(t)
	}
	return c
}

func (c *cluster) do(t *testing.T, server int, args ...string) any {
	t.Helper()
	return c.Primaries[server].Must(t, args...)
}

func (c *cluster) scripts() int { return c.proxies[0].scripts() + c.proxies[1].scripts() }

func (c *cluster) forget() {
	c.proxies[0].forget()
	c.proxies[1].forget()
}

// slot returns the slot of a subject's Redis key.
func (c *cluster) slot(t *testing.T, conn Conn, key string) int64 {
	return c.do(t, 0, "CLUSTER", "KEYSLOT", conn.Store.Key(key, slidingLog)).(int64)
}

// key returns a subject that a server holds.
func (c *cluster) key(t *testing.T, conn Conn, server int) string {
	for i := 0; ; i++ {
		key := sash.Key("k", fmt.Sprint(i))
		if c.slot(t, conn, key)/8192 == int64(server) {
			return key
		}
	}
}

func testCluster(t *testing.T, open Open) {
	c := startCluster(t)
	addr := c.proxies[0].addr()
	conn := connect(t, open, addr, Options{Cluster: true})
	l := limiter(t, conn.Store)
	here, there := c.key(t, conn, 0), c.key(t, conn, 1)

	t.Run("subjects of two servers are charged one by one", func(t *testing.T) {
		res, err := l.AllowAll(patient(t), sash.Subject{Key: here, Cost: 1}, sash.Subject{Key: there, Cost: 2})
		if err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err = l.AllowAll(patient(t), sash.Subject{Key: here, Cost: 1}, sash.Subject{Key: there, Cost: 9})
		if err != nil || res.Allowed {
			t.Errorf("9 of 8: %+v, %v", res, err)
		}
		if a, b := remaining(t, l, here), remaining(t, l, there); a != 9 || b != 8 {
			t.Errorf("%d and %d are left, want 9 and 8", a, b)
		}
	})
	t.Run("subjects of one slot are decided in one command", func(t *testing.T) {
		subjects := []sash.Subject{{Key: sash.KeyTogether("t", "a"), Cost: 1}, {Key: sash.KeyTogether("t", "b"), Cost: 2}}
		c.forget()
		res, err := l.AllowAll(patient(t), subjects...)
		if err != nil || !res.Allowed || c.scripts() != 1 {
			t.Errorf("%d scripts sent: %+v, %v", c.scripts(), res, err)
		}
	})
	t.Run("a charge is settled where it was made", func(t *testing.T) {
		for _, key := range []string{sash.Key("settled"), sash.KeyTogether("t", "settled"), "se{tt}led", "se{tt}}", "se}{}ttled", "{"} {
			r, err := l.Reserve(patient(t), key, 5)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Settle(patient(t), 2); err != nil {
				t.Errorf("%q: %v", key, err)
			}
			if got := remaining(t, l, key); got != 8 {
				t.Errorf("%q: %d of 10 are left after a call that was settled at 2", key, got)
			}
		}
	})
	t.Run("a call with an ID is charged once", func(t *testing.T) {
		for _, key := range []string{sash.Key("once"), sash.KeyTogether("t", "once"), "on{tt}ce", "on{tt}}", "on}{}ce", "}{"} {
			for range 2 {
				if res, err := l.AllowOnce(patient(t), "id", key, 3); err != nil || !res.Allowed || res.Remaining != 7 {
					t.Errorf("%q: %+v, %v", key, res, err)
				}
			}
			if got := remaining(t, l, key); got != 7 {
				t.Errorf("%q: %d of 10 are left after a call of 3", key, got)
			}
		}
	})
	t.Run("a slot that moves is followed", func(t *testing.T) { testMovingSlot(t, c, conn) })
	t.Run("an admission waits for replicas of its own server", func(t *testing.T) {
		conn := connect(t, open, addr, Options{Cluster: true, Store: &redisstore.Options{Replicas: 1, ReplicaTimeout: 20 * time.Millisecond}})
		l := limiter(t, conn.Store)
		for i := range 2 { // neither has one
			key := c.key(t, conn, i) + "r"
			if _, err := l.Allow(patient(t), key); !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
				t.Errorf("%v, want a shortfall", err)
			}
			if got := remaining(t, l, key); got != 9 {
				t.Errorf("%d of 10 are left after a call that was charged", got)
			}
		}
	})
	t.Run("a lost reply is charged at most once", func(t *testing.T) {
		conn := connect(t, open, addr, Options{Cluster: true, Timeout: 500 * time.Millisecond})
		l := limiter(t, conn.Store)
		key := c.key(t, conn, 1)
		before := peekAgain(t, l, key)
		if _, err := l.Allow(context.Background(), key); err != nil {
			t.Fatal(err)
		}
		c.forget()
		c.proxies[1].lose(drop, nil)
		res, err := l.Allow(context.Background(), key)
		if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
			t.Errorf("got %+v, %v, want an unavailable store", res, err)
		}
		if c.scripts() != 1 {
			t.Errorf("the script was sent %d times", c.scripts())
		}
		c.proxies[1].heal()
		if got := peekAgain(t, l, key); got != before-2 {
			t.Errorf("%d are left after two calls, there were %d", got, before)
		}
	})
}

// testMovingSlot charges a subject while its slot moves to the other server and afterwards. The old owner
// of the slot does not hold the subject.
func testMovingSlot(t *testing.T, c *cluster, conn Conn) {
	l := limiter(t, conn.Store)
	var key string
	for i := 0; ; i++ {
		key = sash.Key("moving", fmt.Sprint(i))
		if c.slot(t, conn, key) < 8192 {
			break
		}
	}
	slot := fmt.Sprint(c.slot(t, conn, key))
	charge := func(want int64) {
		t.Helper()
		res, err := l.Allow(patient(t), key)
		if err != nil || res.Remaining != want {
			t.Errorf("%+v, %v, want %d left", res, err, want)
		}
	}
	c.do(t, 1, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[0])
	c.do(t, 0, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[1])
	c.forget()
	charge(9)
	if c.proxies[1].sent("ASKING") == 0 {
		t.Error("the server did not redirect the client, so the test shows nothing")
	}
	c.do(t, 1, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[1])
	c.do(t, 0, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[1])
	charge(8)
	charge(7)
}

// peekAgain is remaining for a client whose connections may have broken.
func peekAgain(t *testing.T, l *sash.Limiter, key string) int64 {
	t.Helper()
	for range 5 {
		if _, err := l.Peek(patient(t), key); err == nil {
			break
		}
	}
	return remaining(t, l, key)
}
