package modeltest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// live is a real server, with the real scripts on the server's own time.
type live struct {
	*redistest.Server
	client *redis.Client
	store  *redisstore.Store
}

func startLive(t testing.TB, args ...string) *live {
	server := redistest.Start(t, args...)
	client := newClient(server.Addr())
	t.Cleanup(func() { client.Close() })
	return &live{server, client, goredisstore.New(client, nil)}
}

func options(a sash.Algorithm) *sash.Options {
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 7 * time.Millisecond // does not divide an hour
	}
	return opts
}

// key returns the name of a subject's Redis key.
func (l *live) key(t testing.TB, name string, a sash.Algorithm) string {
	t.Helper()
	policy := newPolicy(t, options(a), sash.PerHour(1))
	return l.store.Key(name, policy)
}

func (l *live) limiter(t testing.TB, a sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	limiter := newLimiter(t, l.store, options(a), limits...)
	return limiter
}

// state is what a server shows of a key, and whether it wrote anything.
type state struct {
	dump    string
	expires time.Duration // since 1970
	offset  string        // of the replication stream
	changes string        // since the last save
}

func (l *live) state(t testing.TB, key string) state {
	t.Helper()
	ctx := t.Context()
	var s state
	var err error
	if s.dump, err = l.client.Dump(ctx, key).Result(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	s.expires = l.expires(t, key)
	s.offset = l.info(t, "replication", "master_repl_offset")
	s.changes = l.info(t, "persistence", "rdb_changes_since_last_save")
	return s
}

// expires returns when a key expires, by PEXPIRETIME, or less than zero for a key that is not there or has no expiry.
func (l *live) expires(t testing.TB, key string) time.Duration {
	t.Helper()
	at, err := l.client.PExpireTime(t.Context(), key).Result()
	if err == nil {
		return at
	}
	if !strings.HasPrefix(l.info(t, "server", "redis_version"), "6.") {
		t.Fatal(err)
	}
	// Redis 6.2 has no PEXPIRETIME. It reads TIME before PTTL, so the sum can be a millisecond too early, never too late.
	const sum = `local t, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
		return left < 0 and left or math.floor(t[1] * 1000 + t[2] / 1000) + left`
	at = -time.Hour
	for range 5 {
		ms, err := l.client.Eval(t.Context(), sum, []string{key}).Int64()
		if err != nil {
			t.Fatal(err)
		}
		at = max(at, time.Duration(ms)*time.Millisecond)
	}
	return at
}

func (l *live) info(t testing.TB, section, field string) string {
	t.Helper()
	text, err := l.client.Info(t.Context(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(text, field+":")
	if !ok {
		t.Fatalf("INFO %s has no %s", section, field)
	}
	value, _, _ := strings.Cut(after, "\r\n")
	return value
}

func TestRefusalsAndPeeksWriteNothing(t *testing.T) {
	l := startLive(t, "--repl-ping-replica-period", "3600")
	// A replica, so that there is a replication stream whose offset counts every write.
	_, port, _ := strings.Cut(l.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", port)
	for deadline := time.Now().Add(20 * time.Second); l.info(t, "replication", "connected_slaves") != "1"; {
		if time.Now().After(deadline) {
			t.Fatalf("the replica %s does not connect", replica.Addr())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			limiter := l.limiter(t, a, sash.Every(20, time.Hour), sash.Every(200, 2*time.Hour))
			key := l.key(t, "k", a)
			before := l.state(t, key)
			for range 3 {
				if _, err := limiter.Peek(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			if after := l.state(t, key); after != before {
				t.Errorf("a peek at a key that is not there wrote: %+v, before %+v", after, before)
			}
			for range 20 {
				if res, err := limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed {
					t.Fatal(res.Allowed, err)
				}
			}
			charged := l.state(t, key)
			if charged.offset == before.offset || charged.changes == before.changes || charged.dump == before.dump {
				t.Fatalf("20 charges are not seen: this test would see nothing")
			}
			for range 5 {
				for _, cost := range []int64{1, 20} {
					if res, err := limiter.AllowN(t.Context(), "k", cost); err != nil || res.Allowed {
						t.Fatal(res.Allowed, err)
					}
				}
				if _, err := limiter.Peek(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				// All or nothing over two subjects, refused by the second.
				res, err := limiter.AllowAll(t.Context(), sash.Subject{Key: "empty", Cost: 1}, sash.Subject{Key: "k", Cost: 1})
				if err != nil || res.Allowed {
					t.Fatal(res.Allowed, err)
				}
			}
			if after := l.state(t, key); after != charged {
				t.Errorf("refusals and peeks wrote: %+v, before %+v", after, charged)
			}
		})
	}
}

func TestRefusalsWriteNothingAfterChargesHaveLeft(t *testing.T) {
	l := startLive(t)
	const window = 60 * time.Millisecond
	for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SortedSetLog, sash.SlidingBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			limiter := l.limiter(t, a, sash.Every(50, window), sash.Every(60, time.Hour))
			for range 50 {
				if res, err := limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed {
					t.Fatal(res.Allowed, err)
				}
			}
			time.Sleep(window)
			before := l.state(t, l.key(t, "k", a))
			if res, err := limiter.AllowN(t.Context(), "k", 11); err != nil || res.Allowed || res.Limits()[0].Remaining != 50 {
				t.Fatal(res.Allowed, err)
			}
			if _, err := limiter.Peek(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if after := l.state(t, l.key(t, "k", a)); after != before {
				t.Errorf("%+v, before %+v", after, before)
			}
		})
	}
}

func TestKeysLiveAsLongAsTheirCharges(t *testing.T) {
	l := startLive(t)
	plans := [][]sash.Limit{
		{sash.Every(1000, 1500*time.Millisecond)},
		{sash.Every(1000, 700*time.Millisecond), sash.Every(500, 90*time.Second+time.Microsecond)},
		{sash.Every(1000, 17*time.Millisecond)},
		{sash.Every(1000, time.Hour)},
	}
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for i := range 60 {
				plan := plans[i%len(plans)]
				limiter := l.limiter(t, a, plan...)
				name := fmt.Sprint("k", i/7) // some keys under several plans
				res, err := limiter.AllowN(t.Context(), name, 2)
				if err != nil || !res.Allowed {
					t.Fatal(res.Allowed, err)
				}
				expires := l.expires(t, l.key(t, name, a))
				if expires < 0 {
					if res.ResetAfter > 100*time.Millisecond {
						t.Fatalf("after a call under %v the key has no expiry: %v", plan, expires)
					}
					continue // it may have gone by now
				}
				// A key is there until the millisecond of its expiry is over.
				if gone := time.UnixMilli(expires.Milliseconds() + 1); gone.Before(res.At.Add(res.ResetAfter)) {
					t.Errorf("under %v the key is gone %v before its last charge", plan, res.At.Add(res.ResetAfter).Sub(gone))
				}
			}
		})
	}
}

func TestIdleKeysGo(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		limiter := l.limiter(t, a, sash.Every(10, 20*time.Millisecond), sash.Every(30, 50*time.Millisecond))
		for range 10 {
			if _, err := limiter.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		keys, err := l.client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 s after the last call with windows of 50 ms there are still %v", keys)
		}
	}
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	l := startLive(t)
	ask := func(t *testing.T, a sash.Algorithm, left int64) {
		t.Helper()
		limiter := l.limiter(t, a, sash.PerHour(5))
		if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != left {
			t.Errorf("%v: %d left, %v; want %d", a, res.Remaining, err, left)
		}
	}
	for _, a := range sash.Algorithms() {
		ask(t, a, 4)
	}
	if err := l.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, a := range sash.Algorithms() {
		ask(t, a, 3)
	}
	l.Restart() // it forgets the keys and the scripts
	// The pool's connections are dead; a call on a dead one is an error, for it may have been decided.
	for range 64 {
		if l.client.Ping(t.Context()).Err() == nil {
			break
		}
	}
	for _, a := range sash.Algorithms() {
		ask(t, a, 4)
	}
}
