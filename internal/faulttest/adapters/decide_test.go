package adapters

import (
	"errors"
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
