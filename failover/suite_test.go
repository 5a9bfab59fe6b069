package failover_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A store that works answers as if it had no decorator.
func TestAStoreThatWorksIsNotChanged(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		store, err := failover.New(memstore.New(&memstore.Options{Now: clock.Now}), &failover.Options{
			Modes:     failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}},
			Budget:    time.Minute, // a machine that is slow is not what is tested here
			Local:     memstore.New(&memstore.Options{Now: clock.Now}),
			Instances: func() int { return 3 },
		})
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Harness{Store: store, Now: clock.Now, Advance: clock.Advance}
	})
}

var _ failover.LocalStore = (*memstore.Store)(nil)

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
