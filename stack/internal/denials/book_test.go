package denials

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A full store has no room until an instant, neither now nor behind its queue.
type full struct {
	until time.Time
	loose bool // its charges may be settled
	calls int
}

func (f *full) Books(*driver.Policy) bool { return true }

func (f *full) Decide(_ context.Context, req driver.Request) (driver.Answer, error) {
	f.calls++
	now := time.Now()
	wait := max(0, f.until.Sub(now).Microseconds())
	if wait <= req.Within {
		answer := driver.NewAnswer(now.UnixMicro()+wait, 0, []driver.Status{{}, {}})
		answer.Delay = wait
		return answer, nil
	}
	answer := driver.NewAnswer(now.UnixMicro(), 1, []driver.Status{{Retry: wait}, {}})
	answer.Firm = !f.loose
	return answer, nil
}

// within returns the time in milliseconds as a request has it.
func within(ms int64) int64 { return ms * 1000 }

func TestABookingIsRefusedFromMemoryIfItsTurnIsTooFarAway(t *testing.T) {
	const plain = 0
	for _, c := range []struct {
		name          string
		first, second int64 // how far ahead the calls may be booked, in milliseconds
		pause         time.Duration
		loose         bool
		remembered    bool
	}{
		{name: "after a plain call, too far away", first: plain, second: 400, remembered: true},
		{name: "after a plain call, not too far away", first: plain, second: 500},
		{name: "after a plain call, near enough by now", first: plain, second: 400, pause: 100 * time.Millisecond},
		{name: "after a booking, too far away", first: 100, second: 499, remembered: true},
		{name: "after a booking, not too far away", first: 100, second: 500},
		{name: "after a booking, near enough by now", first: 100, second: 300, pause: 200 * time.Millisecond},
		{name: "after a booking, not near enough yet", first: 100, second: 300, pause: 199 * time.Millisecond, remembered: true},
		{name: "after a booking, a plain call may go ahead", first: 100, second: plain},
		{name: "after a plain call, a plain call", first: plain, second: plain, remembered: true},
		{name: "after a plain call that a settlement may overtake", first: plain, second: 100, loose: true},
		{name: "after a booking that a settlement may overtake", first: 100, second: 100, loose: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(500 * time.Millisecond)
				inner := &full{until: end, loose: c.loose}
				store := New(inner, 0)
				p, err := sash.NewPolicy(nil, sash.PerHour(5), sash.PerDay(50))
				if err != nil {
					t.Fatal(err)
				}
				req := driver.Request{Key: "k", Cost: 1, Policy: p, Within: within(c.first)}
				if answer, err := store.Decide(t.Context(), req); err != nil || answer.Allowed() {
					t.Fatalf("%+v, %v", answer, err)
				}
				time.Sleep(c.pause)
				req.Within = within(c.second)
				answer, err := store.Decide(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if remembered := answer.Source == driver.FromCache; remembered != c.remembered {
					t.Fatalf("answered by the %v: %+v", answer.Source, answer)
				}
				if !c.remembered {
					if inner.calls != 2 {
						t.Errorf("the store decided %d times", inner.calls)
					}
					return
				}
				if answer.Refusals != 1 || answer.Retry() != time.Until(end).Microseconds() || answer.Delay != 0 {
					t.Errorf("its turn is in %v: %+v", time.Until(end), answer)
				}
			})
		})
	}
}
