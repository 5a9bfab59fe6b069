package faulttest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

// One process of two cannot reach Redis, the other can. Any window then holds at most N and the share of the one that is
// cut off. When that one reaches Redis again, its units are charged there, though nobody calls it any more.
func TestOneProcessIsCutOff(t *testing.T) { each(t, cutOff) }

func cutOff(t *testing.T, a adapter) {
	const window = 500 * time.Millisecond
	limits := []sash.Limit{sash.Every(40, window), sash.Every(10_000, time.Hour)}
	server := redistest.Start(t)
	p := through(t, server.Addr())
	open := func(addr string) (*failover.Store, *load) {
		store, err := failover.New(a.open(t, to(addr, time.Second)), &failover.Options{
			Modes:     failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
			Local:     memstore.New(nil),
			Instances: func() int { return 2 },
			Classify:  failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close(t.Context()) }) // the context has ended: what is left is lost
		return store, startOn(t, limiter(t, store, limits...), patient)
	}
	reaches, near := open(server.Addr())
	cut, far := open(p.Listen)
	more(t, "both are refused", &near.refused, 100)
	more(t, "both are refused", &far.refused, 100)

	p.add(t, spoil{"timeout", true, nil}, 1)
	await(t, "the breaker opens", func() bool { return cut.State() != failover.Up })
	time.Sleep(6 * window)
	gone := far.stop()
	p.heal(t)
	healed := time.Now()
	await(t, "its units are written", func() bool { return cut.Stats().Backlog == 0 && cut.Stats().InFlight == 0 })
	took := time.Since(healed)
	time.Sleep(2 * window)
	stays := near.stop()
	await(t, "nothing is under way", func() bool { return reaches.Stats().Backlog == 0 && reaches.Stats().InFlight == 0 })

	by := func(source sash.Source) func(call) bool { return func(c call) bool { return c.Source == source } }
	for name, c := range map[string]struct {
		calls history
		most  int64
	}{
		"the store, for both":     {append(gone.where(by(driver.FromStore)), stays.where(by(driver.FromStore))...), 40},
		"the one that is cut off": {gone.where(by(driver.FromLocal)), 20},
		"the other when late":     {stays.where(by(driver.FromLocal)), 20}, // as on a busy machine
	} {
		if n := c.calls.worst(window); n > c.most {
			t.Errorf("%d units were admitted in a window by %s, at most %d", n, name, c.most)
		}
	}
	both := append(gone, stays.where(by(driver.FromStore))...)
	worst := both.worst(window)
	if worst > 40+20 || worst <= 40 {
		t.Errorf("%d units of 40 were admitted in a window, want more than 40 and at most 60", worst)
	}
	charged, stats, late := used(t, near.limiter, subject), cut.Stats(), reaches.Stats()
	admitted := append(gone, stays...).admitted().units()
	if unknown := stats.Doubtful + stats.Lost + late.Doubtful + late.Lost; charged < admitted-unknown || stats.Written == 0 || took > 4*time.Second {
		t.Errorf("%d units were admitted and %d are charged %v after the end: %+v, %+v", admitted, charged, took, stats, late)
	}
	both.log(t, "%d of 40 in a window; %d local units written %v after the end; %+v", worst, stats.Written, took.Round(100*time.Millisecond), stats)
}
