package modeltest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash"
)

// A server that is out of memory refuses and answers peeks. A call that would charge, and a settlement, fail and change nothing.
func TestServerOutOfMemory(t *testing.T) {
	l := startLive(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			full := l.limiter(t, a, sash.Every(3, time.Hour))
			for range 3 {
				if _, err := full.Allow(t.Context(), "full"); err != nil {
					t.Fatal(err)
				}
			}
			l.Must(t, "CONFIG", "SET", "maxmemory", "1")
			if res, err := full.Allow(t.Context(), "full"); err != nil || res.Allowed || res.RetryAfter <= 0 {
				t.Errorf("a refusal: allowed %v, %v", res.Allowed, err)
			}
			if res, err := full.Peek(t.Context(), "full"); err != nil || res.Remaining != 0 {
				t.Errorf("a peek: %d left, %v", res.Remaining, err)
			}
			l.Must(t, "CONFIG", "SET", "maxmemory", "0")

			// Every size of a growing log. GCRA gives nothing back within these windows.
			limiter := l.limiter(t, a, sash.Every(20_000, 30*24*time.Hour), sash.Every(20_000, 60*24*time.Hour))
			key := l.key(t, "k", a)
			for i := range 100 {
				l.outOfMemory(t, key, func() error { _, err := limiter.Allow(t.Context(), "k"); return err })
				if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != int64(20_000-1-i) {
					t.Fatalf("call %d, with memory again: %d left, %v", i, res.Remaining, err)
				}
			}
			for _, actual := range []int64{0, 1, 2, 3, 4, 6, 7, 8, 9, 10} {
				r, err := limiter.Reserve(t.Context(), "k", 5)
				if err != nil {
					t.Fatal(err)
				}
				settle := func() error { return r.Settle(t.Context(), actual) }
				l.outOfMemory(t, key, settle)
				if err := settle(); err != nil {
					t.Fatal(err)
				}
			}
			if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != 20_000-100-50 {
				t.Errorf("%d units are left after charges of 150 (%v)", res.Remaining, err)
			}
		})
	}
}

// outOfMemory expects that a call fails while the server has no memory, and changes nothing.
func (l *live) outOfMemory(t *testing.T, key string, call func() error) {
	t.Helper()
	before := l.state(t, key)
	l.Must(t, "CONFIG", "SET", "maxmemory", "1")
	err := call()
	l.Must(t, "CONFIG", "SET", "maxmemory", "0")
	if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("a call on a server that is out of memory: %v", err)
	}
	if after := l.state(t, key); after != before {
		t.Fatalf("it failed and changed the key from %+v to %+v", before, after)
	}
}

func TestServerOutOfMemoryWhileALargeLogGrows(t *testing.T) {
	l := startLive(t)
	limiter := l.limiter(t, sash.SlidingLog, sash.Every(100_000, time.Hour))
	key := l.key(t, "k", sash.SlidingLog)
	for i := range 6000 {
		if i >= 4000 {
			l.outOfMemory(t, fmt.Sprint("not ", key), func() error { _, err := limiter.Allow(t.Context(), "k"); return err })
		}
		if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Remaining != int64(100_000-1-i) {
			t.Fatalf("call %d: %d left, %v", i, res.Remaining, err)
		}
	}
	if size := l.client.StrLen(t.Context(), key).Val(); size < 1_000_000 {
		t.Fatalf("the log is %d bytes: it did not grow to its full size", size)
	}
}
