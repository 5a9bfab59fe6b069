package storetest_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestMemstore(t *testing.T) { conforms(t, func(s *memstore.Store) driver.Store { return s }) }

// A store without a power has no cases of it.
func TestAStoreThatOnlyDecides(t *testing.T) {
	conforms(t, func(s *memstore.Store) driver.Store { return struct{ driver.Store }{s} }, sash.SlidingLog, sash.GCRA)
}

func conforms(t *testing.T, store func(*memstore.Store) driver.Store, algorithms ...sash.Algorithm) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		return storetest.Harness{
			Store:   store(memstore.New(&memstore.Options{Now: clock.Now})),
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	}, algorithms...)
}
