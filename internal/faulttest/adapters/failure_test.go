package adapters

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

func testLostReply(t *testing.T, open Open) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, p, _ := through(t, open, c.opts)
			l := limiter(t, conn.Store)
			loseReply(t, l, limiter(t, direct.Store), p, c.fault)
			p.heal()
			usable(t, conn)
		})
	}
}

// loseReply requests a unit, loses the reply, and checks how often the script was sent and charged.
func loseReply(t *testing.T, l, direct *sash.Limiter, p *proxy, f fault) {
	t.Helper()
	// The context has no end, so that only the client's timeout ends the call.
	if _, err := l.Allow(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	p.forget()
	p.lose(f, nil)
	res, err := l.Allow(context.Background(), "k")
	if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
		t.Errorf("got %+v, %v, want an unavailable store", res, err)
	}
	if p.scripts() != 1 {
		t.Errorf("the script was sent %d times", p.scripts())
	}
	if got := remaining(t, direct, "k"); got != 8 {
		t.Errorf("%d of 10 are left after two calls, want 8", got)
	}
}

// Unlike a decision, a settlement may be repeated after an error: the store knows it by its ID.
func testLostSettlement(t *testing.T, open Open) {
	conn, direct, p, _ := through(t, open, Options{})
	l, look := limiter(t, conn.Store), limiter(t, direct.Store)
	for _, actual := range []int64{3, 2, 0, 7} { // the first makes the server know the script
		if err := l.Reset(patient(t), "k"); err != nil {
			t.Fatal(err)
		}
		r, err := l.Reserve(patient(t), "k", 5)
		if err != nil {
			t.Fatal(err)
		}
		if actual != 3 {
			p.forget()
			p.lose(cut, nil)
			if err := r.Settle(patient(t), actual); !errors.Is(err, sash.ErrUnavailable) || p.scripts() != 1 {
				t.Errorf("a settlement whose reply was lost: %v; %d scripts were sent", err, p.scripts())
			}
			p.heal()
			usable(t, conn)
		}
		for range 2 {
			if err := r.Settle(patient(t), actual); err != nil {
				t.Fatal(err)
			}
		}
		if got := remaining(t, look, "k"); got != 10-actual {
			t.Errorf("%d of 10 are left after a call that was settled at %d", got, actual)
		}
	}
}

func testContexts(t *testing.T, open Open) {
	wantContext := func(t *testing.T, res sash.Result, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || errors.Is(err, sash.ErrUnavailable) || res.Allowed {
			t.Errorf("got %+v, %v, want %v", res, err, want)
		}
	}
	t.Run("cancelled before", func(t *testing.T) {
		conn, _, p, _ := through(t, open, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		res, err := limiter(t, conn.Store).Allow(ctx, "k")
		wantContext(t, res, err, context.Canceled)
		if p.scripts() != 0 {
			t.Errorf("%d scripts were sent", p.scripts())
		}
	})
	for _, c := range []struct {
		name   string
		within func(lost *func()) (context.Context, context.CancelFunc)
		client Options
		want   error
	}{
		// A client may notice only once it stops waiting.
		{"cancelled while waiting", func(lost *func()) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			*lost = cancel
			return ctx, cancel
		}, Options{Timeout: time.Second}, context.Canceled},
		// The client would wait for longer than this test may take.
		{"past its deadline while waiting", func(*func()) (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 100*time.Millisecond)
		}, Options{Timeout: time.Minute}, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, p, _ := through(t, open, c.client)
			l := limiter(t, conn.Store)
			if _, err := l.Allow(context.Background(), "k"); err != nil {
				t.Fatal(err)
			}
			p.forget()
			var lost func()
			ctx, cancel := c.within(&lost)
			defer cancel()
			p.lose(drop, lost)
			begin := time.Now()
			res, err := l.Allow(ctx, "k")
			wantContext(t, res, err, c.want)
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it took %v to notice", took)
			}
			p.heal()
			if got := remaining(t, limiter(t, direct.Store), "k"); got < 8 {
				t.Errorf("%d of 10 are left after two calls", got)
			}
			usable(t, conn)
		})
	}
}

func testDown(t *testing.T, open Open) {
	server := redistest.Start(t)
	conn := connect(t, open, server.Addr(), Options{})
	l := limiter(t, conn.Store)
	server.Stop()
	res, err := l.Allow(context.Background(), "k")
	if !errors.Is(err, sash.ErrUnavailable) || res.Allowed {
		t.Errorf("got %+v, %v, want an unavailable store", res, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is a context's error, but no context ended", err)
	}
	server.Restart()
	usable(t, conn)
	decidesAgain(t, l)
}

func testScriptError(t *testing.T, open Open) {
	server := redistest.Start(t)
	conn := connect(t, open, server.Addr(), Options{})
	server.Must(t, "LPUSH", conn.Store.Key("k", slidingLog), "x")
	_, err := limiter(t, conn.Store).Allow(patient(t), "k")
	if !errors.Is(err, sash.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), "log.lua") {
		t.Errorf("got %v, want an error that names the script and WRONGTYPE", err)
	}
}

// A call with an ID may be repeated after its reply was lost. The server then runs it twice and charges it
// once, and every repetition is admitted.
func testLostOnce(t *testing.T, open Open) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, p, _ := through(t, open, c.opts)
			for _, algorithm := range sash.Algorithms() {
				loseOnce(t, conn, direct, p, c.fault, optionsOf(algorithm))
			}
		})
	}
}

func loseOnce(t *testing.T, conn, direct Conn, p *proxy, f fault, opts *sash.Options) {
	t.Helper()
	l, look := limiterBy(t, conn.Store, opts), limiterBy(t, direct.Store, opts)
	if _, err := look.AllowOnce(patient(t), "before", "other", 1); err != nil { // the server knows the script
		t.Fatal(err)
	}
	p.forget()
	p.lose(f, nil)
	res, err := l.AllowOnce(context.Background(), "id", "k", 4)
	if !errors.Is(err, sash.ErrUnavailable) || res.Allowed || p.scripts() != 1 {
		t.Errorf("%v: %+v, %v after %d scripts, want an unavailable store after one", opts.Algorithm, res, err, p.scripts())
	}
	p.heal()
	usable(t, conn)
	if got := remaining(t, look, "k"); got != 6 {
		t.Errorf("%v: %d of 10 are left after a call of 4 whose reply was lost", opts.Algorithm, got)
	}
	first, err := l.AllowOnce(patient(t), "id", "k", 4)
	if err != nil || !first.Allowed || first.Remaining != 6 {
		t.Errorf("%v: repeated, it got %+v, %v", opts.Algorithm, first, err)
	}
	second, err := l.AllowOnce(patient(t), "id", "k", 4)
	if err != nil || !second.Allowed || second.Remaining != 6 || !first.At.Equal(second.At) {
		t.Errorf("%v: repeated again, it got %+v, %v", opts.Algorithm, second, err)
	}
	if got := remaining(t, look, "k"); got != 6 {
		t.Errorf("%v: %d of 10 are left after a call of 4 and two repetitions", opts.Algorithm, got)
	}
}
