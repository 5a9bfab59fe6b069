package degrade

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A counter answers heart-beats in a synctest bubble.
type counter struct {
	mu    sync.Mutex
	n     int         // guarded by mu
	err   error       // guarded by mu
	beats []time.Time // guarded by mu
}

func (c *counter) says(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.err = n, err
}

func (c *counter) beat(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = append(c.beats, time.Now())
	return c.n, c.err
}

// start runs a fleet until the test ends.
func start(t *testing.T, c *counter, floor int) *fleet {
	t.Helper()
	f := &fleet{floor: floor, beat: c.beat, log: quiet}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return f
}

func (f *fleet) is(t *testing.T, want int, when string) {
	t.Helper()
	synctest.Wait()
	if got := f.instances(); got != want {
		t.Errorf("%s: %d instances, want %d", when, got, want)
	}
}

func TestAFleetIsCountedAtOnceAndThenAFewTimesInEachLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{n: 3}
		f := start(t, c, 0)
		f.is(t, 3, "at the start")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		var shortest, longest = time.Hour, time.Duration(0)
		for i := 1; i < len(c.beats); i++ {
			d := c.beats[i].Sub(c.beats[i-1])
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if longest > lives/3 || shortest < every/2 || longest-shortest < time.Second {
			t.Errorf("beats are %v to %v apart", shortest, longest)
		}
	})
}

func TestTheGreatestNumberOfAWhileCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{err: errors.New("connection refused")}
		f := start(t, c, 0)
		f.is(t, 0, "nobody has counted")
		c.says(5, nil)
		time.Sleep(every)
		f.is(t, 5, "Redis is there")
		c.says(5, errors.New("connection refused"))
		time.Sleep(time.Hour)
		f.is(t, 5, "Redis is gone for an hour")
		c.says(1, nil) // it has forgotten
		time.Sleep(every)
		f.is(t, 5, "the others have not called yet")
		time.Sleep(lives)
		f.is(t, 1, "the others would have called")
		c.says(2, nil)
		time.Sleep(every)
		f.is(t, 2, "another one came")
	})
}
