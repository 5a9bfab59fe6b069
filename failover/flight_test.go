package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
)

// Whenever Reset returns nil, the store is not charged later what was admitted before: while it is looked at, while it is
// written, and while the store still works on the call itself.
func TestResetComesAfterLocalAdmissions(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // of the store, which is back
		id    string
		begin func(t *testing.T, inner *fake, store *failover.Store)
	}{
		"looks and writes":            {takes: 40 * time.Millisecond},
		"short looks and writes":      {takes: 20 * time.Millisecond},
		"a call with an ID":           {takes: 20 * time.Millisecond, id: "job 7"},
		"answers come late":           {takes: 60 * time.Millisecond},
		"answers to an ID come late":  {takes: 60 * time.Millisecond, id: "job 7"},
		"the store answers and fails": {takes: 0},
	} {
		t.Run(name, func(t *testing.T) {
			done := 0
			for after := time.Duration(0); after < 400*time.Millisecond; after += 5 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					inner, store, l := outage(t, inFour, sash.PerHour(1000))
					bringDown(t, inner, store)
					admit(t, l, "k", 3)
					if c.id != "" {
						once(t, l, c.id, "k", 5)
					}
					inner.becomes(hangs(c.takes))
					if c.takes == 0 {
						inner.becomes(failsEverySecond())
					}
					time.Sleep(after)
					err := l.Reset(t.Context(), "k")
					inner.becomes(nil)
					time.Sleep(time.Minute)
					if err != nil {
						return
					}
					done++
					if left := remaining(t, inner, sash.PerHour(1000)); left != 1000 {
						t.Errorf("reset after %v: %d of 1000 are left", after, left)
					}
				})
			}
			if done == 0 && c.takes < failover.DefaultBudget {
				t.Error("no reset succeeded")
			}
		})
	}
}

// failsEverySecond fails every second call without making it.
func failsEverySecond() func(context.Context) error {
	calls := 0
	return func(context.Context) error {
		time.Sleep(10 * time.Millisecond)
		if calls++; calls%2 == 0 {
			return errRefused
		}
		return nil
	}
}

// A call that the store still works on when Reset comes is either forgotten, or Reset says that it does not know.
func TestResetComesAfterACallThatIsLate(t *testing.T) {
	for name, late := range map[string]func(context.Context) error{
		"charged": hangs(80 * time.Millisecond),
		"not sent": func(context.Context) error {
			<-time.After(80 * time.Millisecond)
			return errRefused
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, id := range []string{"", "job 7"} {
				synctest.Test(t, func(t *testing.T) {
					inner, _, l := outage(t, inFour, sash.PerHour(1000))
					inner.becomes(late)
					if id == "" {
						admit(t, l, "k", 1)
					} else {
						once(t, l, id, "k", 1)
					}
					inner.becomes(nil)
					if err := l.Reset(t.Context(), "k"); err != nil {
						t.Fatal(err) // the call ends 30 ms later, within the budget
					}
					time.Sleep(time.Minute)
					if left := remaining(t, inner, sash.PerHour(1000)); left != 1000 {
						t.Errorf("ID %q: %d of 1000 are left", id, left)
					}
				})
			}
		})
	}
}

// Settlements of local admissions count as long as nothing was written, whatever the backlog does meanwhile.
func TestSettlementsFindWhatWaits(t *testing.T) {
	for name, do := range map[string]func(context.Context) error{
		"the store hangs":     stalls,
		"the store is gone":   fails(errRefused),
		"its answers are bad": fails(errBroken),
	} {
		bubble(t, name, func(t *testing.T) {
			inner, store, l := outage(t, inFour, sash.PerHour(100_000))
			bringDown(t, inner, store)
			inner.becomes(do)
			_ = allow(t, l, "k", 100)
			for range 500 {
				res, err := l.Reserve(t.Context(), "k", 10)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				if err := res.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stats := store.Stats()
			if stats.Doubtful > 10*10 { // of calls that took their turn as probes
				t.Errorf("%d units are doubtful", stats.Doubtful)
			}
			inner.becomes(nil)
			time.Sleep(time.Minute)
			if left := remaining(t, inner, sash.PerHour(100_000)); left != 100_000-100 {
				t.Errorf("%d units are charged, want 100; %+v", 100_000-left, stats)
			}
		})
	}
}
