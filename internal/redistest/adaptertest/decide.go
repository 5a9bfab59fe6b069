package adaptertest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

func testAlgorithms(t *testing.T, open Open) {
	conn := connect(t, open, redistest.Start(t).Addr(), Options{})
	for _, algorithm := range sash.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			ctx := patient(t)
			l := limiterBy(t, conn.Store, optionsOf(algorithm))
			// Its bytes are not valid in any text encoding.
			const key = "a\x00\r\n\xff"
			res, err := l.AllowN(ctx, key, 7)
			if err != nil || !res.Allowed || res.Remaining != 3 {
				t.Fatalf("7 of 10: %+v, %v", res, err)
			}
			res, err = l.AllowN(ctx, key, 4)
			if err != nil || res.Allowed || res.RetryAfter <= 0 || res.RetryAfter > 48*time.Hour {
				t.Errorf("4 of 3: %+v, %v", res, err)
			}
			if got := remaining(t, l, key); got != 3 {
				t.Errorf("after a refusal %d are left", got)
			}
			if err := l.Reset(ctx, key); err != nil {
				t.Error(err)
			}
			if got := remaining(t, l, key); got != 10 {
				t.Errorf("after a reset %d are left", got)
			}
		})
	}
	usable(t, conn)
}

func testSubjects(t *testing.T, open Open) {
	conn, _, p, _ := through(t, open, Options{})
	ctx, l := patient(t), limiter(t, conn.Store)
	if _, err := l.Allow(ctx, "load the script"); err != nil {
		t.Fatal(err)
	}
	p.forget()
	res, err := l.AllowAll(ctx, sash.Subject{Key: "client", Cost: 2}, sash.Subject{Key: "shared", Cost: 3})
	if err != nil || !res.Allowed || p.scripts() != 1 {
		t.Fatalf("%d scripts sent: %+v, %v", p.scripts(), res, err)
	}
	if a, b := remaining(t, l, "client"), remaining(t, l, "shared"); a != 8 || b != 7 {
		t.Errorf("%d and %d are left, want 8 and 7", a, b)
	}
	res, err = l.AllowAll(ctx, sash.Subject{Key: "client", Cost: 8}, sash.Subject{Key: "shared", Cost: 8})
	if err != nil || res.Allowed {
		t.Errorf("8 of 7: %+v, %v", res, err)
	}
	if a, b := remaining(t, l, "client"), remaining(t, l, "shared"); a != 8 || b != 7 {
		t.Errorf("after a refusal %d and %d are left, want 8 and 7", a, b)
	}
}

func testConcurrency(t *testing.T, open Open) {
	conn := connect(t, open, redistest.Start(t).Addr(), Options{})
	ctx, l := patient(t), limiter(t, conn.Store)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 5 {
				res, err := l.Allow(ctx, "k")
				if err != nil {
					t.Error(err)
				}
				if res.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 10 {
		t.Errorf("%d of 160 calls were admitted, want 10", allowed.Load())
	}
}

func testNoScript(t *testing.T, open Open) {
	conn, _, p, server := through(t, open, Options{})
	ctx, l := patient(t), limiter(t, conn.Store)
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
		p.forget()
		res, err := l.Allow(ctx, "k")
		if err != nil || !res.Allowed || res.Remaining != int64(9-i) {
			t.Errorf("%s: %+v, %v", step.name, res, err)
		}
		if sha, text := p.sent("EVALSHA"), p.sent("EVAL"); sha != step.evalsha || text != step.eval {
			t.Errorf("%s sent %d EVALSHA and %d EVAL, want %d and %d", step.name, sha, text, step.evalsha, step.eval)
		}
	}
}

func testRestart(t *testing.T, open Open) {
	server := redistest.Start(t)
	conn := connect(t, open, server.Addr(), Options{})
	l := limiter(t, conn.Store)
	if res, err := l.Allow(patient(t), "k"); err != nil || res.Remaining != 9 {
		t.Fatalf("%+v, %v", res, err)
	}
	server.Restart()
	decidesAgain(t, l)
	usable(t, conn)
}

// decidesAgain calls until the new server decides. A call on a connection that broke may fail, and may be
// charged at most once.
func decidesAgain(t *testing.T, l *sash.Limiter) {
	t.Helper()
	for failed := int64(0); ; failed++ {
		res, err := l.Allow(patient(t), "k")
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
