package storetest_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func TestMemstore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		return storetest.Harness{
			Store:   memstore.New(&memstore.Options{Now: clock.Now}),
			Now:     clock.Now,
			Advance: clock.Advance,
		}
	})
}
