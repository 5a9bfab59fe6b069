package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
)

func (s *fake) DecideAny(ctx context.Context, reqs []driver.Request) (int, driver.Answer, error) {
	if err := s.enter(ctx); err != nil {
		return 0, driver.Answer{}, err
	}
	return s.Store.DecideAny(ctx, reqs)
}

// The failure mode answers for a choice: an error, an admission that is not counted, or this process's share of any of
// the subjects.
func TestAChoiceIsAnsweredByTheMode(t *testing.T) {
	for mode, want := range map[failover.Mode]int{failover.Closed: 0, failover.Local: 6, failover.Open: 20} {
		bubble(t, mode.String(), func(t *testing.T) {
			inner, store, l := outage(t, failover.Options{Modes: always(mode), Instances: func() int { return 2 }}, sash.PerMinute(4))
			bringDown(t, inner, store)
			pool := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1}, {Key: "c", Cost: 1}}
			admitted := 0
			for range 20 {
				_, res, err := l.AllowAny(t.Context(), pool...)
				if (err != nil) != (mode == failover.Closed) || err != nil && !errors.Is(err, sash.ErrUnavailable) {
					t.Fatal(err)
				}
				if res.Allowed {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("%d of 20 were admitted, want %d", admitted, want)
			}
		})
	}
}

// Callers that book while the store is away book the subject that is free first, of this process's share.
func TestAChoiceIsBookedLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store, l := outage(t, failover.Options{Modes: always(failover.Local)}, sash.Every(2, 10*time.Second))
		bringDown(t, inner, store)
		pool := []sash.Subject{{Key: "a", Cost: 1}, {Key: "b", Cost: 1}, {Key: "c", Cost: 1}}
		delays := map[time.Duration]int{}
		for range 12 {
			_, r, err := l.BookAny(t.Context(), time.Minute, pool...)
			if err != nil || !r.Allowed() {
				t.Fatalf("%+v, %v", r, err)
			}
			delays[r.Delay()]++
		}
		if delays[0] != 6 || delays[10*time.Second] != 6 {
			t.Errorf("6 now and 6 in 10 s were to start: %v", delays)
		}
	})
}
