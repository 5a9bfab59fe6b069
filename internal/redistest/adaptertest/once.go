package adaptertest

import (
	"context"
	"errors"
	"testing"

	"example.com/sash"
)

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
