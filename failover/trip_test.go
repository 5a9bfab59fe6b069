package failover_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

// A traffic makes calls at even distances, each in a goroutine, and counts who answered.
type traffic struct {
	group                  sync.WaitGroup
	store, policy, waiting atomic.Int64 // waiting counts the policy's answers that took the whole budget
}

func (c *traffic) call(t *testing.T, l *sash.Limiter) {
	c.group.Go(func() {
		began := time.Now()
		res, err := l.Allow(t.Context(), "k")
		switch {
		case err != nil:
			t.Error(err)
		case res.Source == driver.FromStore:
			c.store.Add(1)
		default:
			c.policy.Add(1)
			if time.Since(began) >= failover.DefaultBudget {
				c.waiting.Add(1)
			}
		}
	})
}

// run makes calls at a rate for a while.
func (c *traffic) run(t *testing.T, l *sash.Limiter, perSecond int, d time.Duration) {
	gap := time.Second / time.Duration(perSecond)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(gap) {
		c.call(t, l)
	}
}

// stall makes a store answer nothing before an instant, and everything then.
func stall(d time.Duration) func(context.Context) error {
	until := time.Now().Add(d)
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(until)):
			return nil
		}
	}
}

// A store that stalls for a moment answers late those calls that came then, and no others are taken from it.
func TestABlipTakesNoCallsFromTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond, burst int
		lasts            time.Duration
		most             int64 // answers by the failure mode
	}{
		"a burst that is answered late": {100, 330, 55 * time.Millisecond, 331},
		"a fork":                        {1000, 0, 60 * time.Millisecond, 11},
		"a packet that is sent again":   {1000, 0, 200 * time.Millisecond, 151},
		"the same, at 20,000 a second":  {20_000, 0, 200 * time.Millisecond, 3001},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open), MaxInFlight: 10_000}, sash.PerHour(90_000))
			var calls traffic
			calls.run(t, l, c.perSecond, time.Second)
			inner.becomes(stall(c.lasts))
			for range c.burst {
				calls.call(t, l)
			}
			calls.run(t, l, c.perSecond, time.Second)
			calls.group.Wait()
			t.Logf("%d answers by the store, %d by the failure mode", calls.store.Load(), calls.policy.Load())
			if calls.policy.Load() > c.most || store.State() != failover.Up {
				t.Errorf("%d answers by the failure mode, want at most %d; the store is %v", calls.policy.Load(), c.most, store.State())
			}
		})
	}
}

// How many calls wait for the whole budget until a store that hangs is down.
func TestAHangIsFoundSoon(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond int
		most      int64
		soon      time.Duration
	}{
		"1 call a second":       {1, 6, 5 * time.Second},
		"10 calls a second":     {10, 6, 500 * time.Millisecond},
		"1,000 calls a second":  {1000, 260, 255 * time.Millisecond},
		"10,000 calls a second": {10_000, 2600, 255 * time.Millisecond},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner := newFake()
			var began time.Time
			var down time.Duration
			store := guarded(t, inner, failover.Options{Modes: always(failover.Open), OnChange: func(now failover.State, _ error) {
				if now == failover.Down && down == 0 {
					down = time.Since(began)
				}
			}})
			l := newLimiter(t, store, nil, sash.PerHour(90_000))
			var before, calls traffic
			before.run(t, l, c.perSecond, time.Second)
			before.group.Wait()
			inner.becomes(stalls)
			began = time.Now()
			for store.State() == failover.Up && time.Since(began) < time.Minute {
				calls.call(t, l)
				time.Sleep(time.Second / time.Duration(c.perSecond))
			}
			calls.group.Wait()
			t.Logf("%d calls waited for the whole budget; the store was down after %v", calls.waiting.Load(), down)
			if calls.waiting.Load() > c.most || down == 0 || down > c.soon {
				t.Errorf("%d calls waited, want at most %d; the store was down after %v, want %v", calls.waiting.Load(), c.most, down, c.soon)
			}
			time.Sleep(time.Second) // the last calls have their whole budget
		})
	}
}

// A store that fails for a part of the calls is down from a share on, if there are enough calls.
func TestAShareOfFailuresTakesTheStoreDown(t *testing.T) {
	for name, c := range map[string]struct {
		blip      time.Duration
		perSecond int
		fails     int // of ten calls
		down      bool
	}{
		"six of ten":       {0, 100, 6, true},
		"four of ten":      {0, 100, 4, false},
		"six of few calls": {0, 10, 6, false},
		"all of few calls": {0, 2, 10, true},
		"a longer blip":    {time.Minute, 100, 10, false},
	} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open), Blip: c.blip}, sash.PerHour(90_000))
			var n atomic.Int64
			inner.becomes(func(context.Context) error {
				if n.Add(1)*7%10 < int64(c.fails) { // spread evenly
					return errBroken
				}
				return nil
			})
			for began := time.Now(); time.Since(began) < 20*time.Second && store.State() == failover.Up; {
				allow(t, l, "k", 1)
				time.Sleep(time.Second / time.Duration(c.perSecond))
			}
			if down := store.State() == failover.Down; down != c.down {
				t.Errorf("after %d calls the store is %v", n.Load(), store.State())
			}
		})
	}
}

// A store that fails as soon as it is back is down again after five calls, however fast they come; a second later it has
// the time of a blip again.
func TestAStoreThatIsBackAndFailsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		well time.Duration
		want int // calls that it gets
	}{"at once": {0, 5}, "after two seconds": {2 * time.Second, 100}} {
		failover.Bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(failover.Open)}, sash.PerHour(90_000))
			bringDown(t, inner, store)
			bringBack(t, inner, store)
			for range c.well / (100 * time.Millisecond) {
				time.Sleep(100 * time.Millisecond)
				allow(t, l, "k", 1)
			}
			inner.becomes(fails(errBroken))
			admit(t, l, "k", 100)
			if calls, _ := inner.seen(); calls != c.want {
				t.Errorf("it got %d of 100 calls, want %d; it is %v", calls, c.want, store.State())
			}
		})
	}
}

func TestClassifyByAsksWhetherTheCallWasChargedFirst(t *testing.T) {
	for _, c := range []struct {
		uncharged, misconfigured bool
		want                     failover.Kind
	}{
		{false, false, failover.Unknown},
		{false, true, failover.Unknown},
		{true, false, failover.Unsent},
		{true, true, failover.Misconfigured},
	} {
		classify := failover.ClassifyBy(
			func(error) bool { return c.uncharged },
			func(error) bool { return c.misconfigured },
		)
		if kind := classify(errors.New("refused")); kind != c.want {
			t.Errorf("uncharged %v, misconfigured %v: kind %v, want %v", c.uncharged, c.misconfigured, kind, c.want)
		}
	}
}
