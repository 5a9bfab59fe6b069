package redisclient

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a network whose addresses can be down; it counts what is dialled.
type fake struct {
	down  bool
	dials int
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	f.dials++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.down {
		return nil, errors.New("refused")
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil
}

func TestAServerThatCannotBeReachedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &fake{down: true}
		d := newDialer(time.Second, nil)
		d.dial = network.dial
		// Ten callers a millisecond for a minute, while the server is away.
		var gaps []time.Duration
		last := time.Now()
		for range 60_000 {
			for range 10 {
				before := network.dials
				if _, err := d.Dial(t.Context(), "tcp", "a"); err == nil {
					t.Fatal("connected to a server that is away")
				}
				if network.dials > before {
					gaps = append(gaps, time.Since(last))
					last = time.Now()
				}
			}
			time.Sleep(time.Millisecond)
		}
		if network.dials < 60 || network.dials > 140 {
			t.Errorf("%d connections were tried within a minute", network.dials)
		}
		distinct := map[time.Duration]bool{}
		for _, gap := range gaps[8:] {
			distinct[gap] = true
			if gap < longestPause/2 || gap > longestPause+2*time.Millisecond {
				t.Errorf("the next one is tried after %v", gap)
			}
		}
		if len(distinct) < 20 {
			t.Errorf("pauses have %d different lengths: no jitter", len(distinct))
		}
		network.down = false
		time.Sleep(longestPause)
		if _, err := d.Dial(t.Context(), "tcp", "a"); err != nil {
			t.Errorf("the server is back: %v", err)
		}
		network.down = true
		if _, err := d.Dial(t.Context(), "tcp", "a"); err == nil || err.Error() != "refused" {
			t.Errorf("the first failure after a success is a pause already: %v", err)
		}
		if _, err := d.Dial(t.Context(), "tcp", "b"); err == nil || err.Error() != "refused" {
			t.Errorf("another address pays for the first: %v", err)
		}
	})
}

func TestACallerThatGivesUpTripsNothing(t *testing.T) {
	network := &fake{}
	d := newDialer(time.Second, nil)
	d.dial = network.dial
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Dial(ctx, "tcp", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Dial(t.Context(), "tcp", "a"); err != nil {
		t.Errorf("the next caller: %v", err)
	}
}

func TestOneCallerAtATimeFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		d := newDialer(time.Second, nil)
		d.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done() // a black hole
			return nil, ctx.Err()
		}
		_, _ = d.Dial(t.Context(), "tcp", "a")
		time.Sleep(longestPause)
		dials = 0
		began := time.Now()
		for range 50 {
			go func() { _, _ = d.Dial(t.Context(), "tcp", "a") }()
		}
		synctest.Wait()
		if dials != 1 || time.Since(began) != 0 {
			t.Errorf("%d callers dial at once", dials)
		}
		time.Sleep(2 * time.Second)
	})
}
