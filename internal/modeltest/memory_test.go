package modeltest

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
)

func TestServerOutOfMemory(t *testing.T) {
	l := startLive(t)
	limit := func(bytes int) {
		t.Helper()
		if err := l.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			defer limit(0)
			full := l.limiter(t, a, sash.Every(3, time.Hour))
			for range 3 {
				if _, err := full.Allow(t.Context(), "full"); err != nil {
					t.Fatal(err)
				}
			}
			limit(1)
			if res, err := full.Allow(t.Context(), "full"); err != nil || res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("a refusal on a server that is out of memory: allowed %v, %v", res.Allowed, err)
			}
			if res, err := full.Peek(t.Context(), "full"); err != nil || res.Remaining != 0 {
				t.Errorf("a peek on a server that is out of memory: %d left, %v", res.Remaining, err)
			}
			limit(0)

			// Every size of a growing log.
			limiter := l.limiter(t, a, sash.Every(20_000, 30*24*time.Hour), sash.Every(20_000, 60*24*time.Hour)) // GCRA gives nothing back meanwhile
			key := l.key(t, "k", a)
			for i := range 100 {
				before := l.state(t, key)
				limit(1)
				_, err := limiter.Allow(t.Context(), "k")
				limit(0)
				if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
					t.Fatalf("call %d on a server that is out of memory: %v", i, err)
				}
				if after := l.state(t, key); after != before {
					t.Fatalf("call %d failed and changed the key from %+v to %+v", i, before, after)
				}
				if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != int64(20_000-1-i) {
					t.Fatalf("call %d, with memory again: %d left, %v", i, res.Remaining, err)
				}
			}
		})
	}
}

func TestServerOutOfMemoryWhileSettling(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			limiter := l.limiter(t, a, sash.Every(1000, time.Hour))
			key := l.key(t, "k", a)
			for actual := range int64(10) {
				r, err := limiter.Reserve(t.Context(), "k", 5)
				if err != nil {
					t.Fatal(err)
				}
				before := l.state(t, key)
				if err := l.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
					t.Fatal(err)
				}
				err = r.Settle(t.Context(), actual)
				if err := l.client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
					t.Fatal(err)
				}
				if actual != 5 && (!errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "OOM")) {
					t.Fatalf("settled with %d on a server that is out of memory: %v", actual, err)
				}
				if after := l.state(t, key); after != before {
					t.Fatalf("it failed and changed the key from %+v to %+v", before, after)
				}
				if err := r.Settle(t.Context(), actual); err != nil {
					t.Fatal(err)
				}
			}
			res, err := limiter.Peek(t.Context(), "k")
			if used := 1000 - res.Remaining; err != nil || used != 45 && a.Exact() || used < 44 || used > 45 {
				t.Errorf("%d units are in use, want 45 (%v)", used, err)
			}
		})
	}
}

func TestServerOutOfMemoryWhileALargeLogGrows(t *testing.T) {
	l := startLive(t)
	limiter := l.limiter(t, sash.SlidingLog, sash.Every(100_000, time.Hour))
	key := l.key(t, "k", sash.SlidingLog)
	size := int64(0)
	for i := range 6000 {
		if i >= 4000 {
			if err := l.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, sash.ErrUnavailable) {
				t.Fatalf("call %d on a server that is out of memory: %v", i, err)
			}
			if err := l.client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != int64(100_000-1-i) {
			t.Fatalf("call %d: %d left, %v", i, res.Remaining, err)
		}
		size = l.client.StrLen(t.Context(), key).Val()
	}
	if size < 1_000_000 {
		t.Fatalf("the log is %d bytes: it did not grow to its full size", size)
	}
}
