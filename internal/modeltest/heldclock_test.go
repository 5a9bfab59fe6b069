package modeltest

import (
	"testing"
	"time"

	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

// A lease ends by the server's clock. One that jumps ahead ends it early. One that is set back to before the interval in
// which demand is counted, at most an eighth of the longest lease while calls come, ends it at once. One that is set back
// by less lets it be spent as much later.
func TestLeasesOnAClockThatJumps(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	client := newClient(server.Addr())
	t.Cleanup(func() { client.Close() })
	store := goredisstore.New(client, nil)
	for _, c := range []struct {
		name  string
		jumps []time.Duration // how far the clock is ahead of the time at which the lease was brought
		spent bool
	}{
		{"ahead, within the lease", []time.Duration{50 * time.Minute}, true},
		{"ahead, to its end", []time.Duration{time.Hour}, false},
		{"ahead, and back", []time.Duration{2 * time.Hour, 0}, false},
		{"back", []time.Duration{-time.Minute}, false},
		{"back, and forward", []time.Duration{-time.Minute, 30 * time.Minute}, false},
		{"back by a day", []time.Duration{-24 * time.Hour}, false},
		{"ahead, and back by half of it", []time.Duration{40 * time.Minute, 20 * time.Minute}, false},
		{"back by less than an eighth of the lease", []time.Duration{6 * time.Minute, 3 * time.Minute}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock.Move(t, 0)
			server.Must(t, "FLUSHALL")
			s := &spender{TB: t}
			if !s.bring(store, s.errand(store), 100) {
				t.Fatal("the lease is not kept")
			}
			s.spend(store, 10)
			spent := false
			for _, jump := range c.jumps {
				clock.Move(t, jump)
				spent = s.ask(store).Spent
			}
			if spent != c.spent {
				t.Errorf("a unit is spent: %v, want %v", spent, c.spent)
			}
			s.over(store)
		})
	}
}
