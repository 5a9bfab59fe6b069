package judge_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

// A settlement that comes too late does nothing, also when the clock then goes back to where the charge counts.
func TestALateSettlementBeforeAClockThatGoesBack(t *testing.T) {
	for a, lasts := range map[sash.Algorithm]time.Duration{
		sash.SlidingLog: time.Minute, sash.FixedWindow: time.Minute, sash.SlidingCounter: 2 * time.Minute,
	} {
		policy, err := sash.NewPolicy(&sash.Options{Algorithm: a}, sash.PerMinute(3))
		if err != nil {
			t.Fatal(err)
		}
		made := time.Date(2031, 3, 29, 23, 0, 0, 0, time.UTC)
		req := driver.Request{Key: "k", Cost: 2, Policy: policy}
		def := judge.New()
		check := func(at time.Time, req driver.Request, s driver.Status) {
			t.Helper()
			if err := def.Check(at, []driver.Request{req}, []driver.Answer{driver.NewAnswer(at.UnixMicro(), 0, []driver.Status{s})}); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
		first := driver.Status{Remaining: 1, Release: time.Minute.Microseconds(), Reset: lasts.Microseconds()}
		if a == sash.SlidingCounter { // from then on the bucket before counts in part
			first.Release = 3 * time.Minute.Microseconds() / 2
		}
		check(made, req, first)
		end := made.Add(lasts)
		def.Settle(end, driver.Settlement{Request: req, At: made.UnixMicro()})
		peek := req
		peek.Cost = 0
		check(end, peek, driver.Status{Remaining: 3})
		left := driver.Status{Remaining: 1, Release: 1, Reset: 1}
		if a == sash.SlidingCounter {
			left.Remaining = 2
		}
		check(end.Add(-time.Microsecond), peek, left)
	}
}
