package degrade

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/redisstore"
)

// A report counts the requests that nothing counted from the first failure of an outage on, before the breaker noticed,
// and keeps the number when Redis is back; what failed long before is not part of it.
func TestAReportCountsWhatAnOutageLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := &scripts{err: errors.New("LOADING Redis is loading the dataset in memory")}
		let := int64(7) // before
		g, err := New(redisstore.New(redis, nil), Options{Address: "redis.example:6379", Uncounted: func() int64 { return let }})
		if err != nil {
			t.Fatal(err)
		}
		open, err := g.Store.With(failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}})
		if err != nil {
			t.Fatal(err)
		}
		l := limiterOf(t, open, sash.PerMinute(10))
		ask := func() {
			if res, err := l.Allow(t.Context(), "k"); err == nil && res.Source == sash.FromPolicy {
				let++
			}
		}
		ask() // one failure, which takes nothing down
		time.Sleep(time.Minute)
		if r := g.Report(); r.Status != "ok" || r.Err != nil || r.Uncounted != 0 || !r.Since.IsZero() || r.Address != "redis.example:6379" {
			t.Fatalf("up: %+v", r)
		}
		for range 100 {
			ask()
			time.Sleep(10 * time.Millisecond)
		}
		r := g.Report()
		if r.Status != "degraded" || r.Cause != "loading" || !errors.Is(r.Err, g.outages.why) || r.Uncounted != 100 || time.Since(r.Since) > time.Second {
			t.Errorf("down: %+v", r)
		}
		redis.err = nil // it answers that the key is wrong
		for range 100 {
			ask()
			time.Sleep(100 * time.Millisecond)
		}
		during := let - 8
		let += 5
		if r := g.Report(); r.Status != "ok" || r.Err != nil || r.Uncounted != during || time.Since(r.Since) > 10*time.Second || r.Since.IsZero() {
			t.Errorf("up again, after %d: %+v", during, r)
		}
	})
}
