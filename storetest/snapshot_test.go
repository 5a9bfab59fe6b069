package storetest_test

import (
	"bytes"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A store that continues in a new one from a snapshot whenever the clock moves answers like the store before it.
func TestRestoredMemstore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 123_456_000, time.UTC))
		opts := memstore.Options{Now: clock.Now}
		now := memstore.New(&opts)
		store := &driver.Passthrough{Next: now}
		return storetest.Harness{
			Store: store,
			Now:   clock.Now,
			Advance: func(d time.Duration) {
				clock.Advance(d)
				var snapshot bytes.Buffer
				if err := now.Snapshot(&snapshot); err != nil {
					t.Fatal(err)
				}
				now = memstore.New(&opts)
				if err := now.Restore(&snapshot); err != nil {
					t.Fatal(err)
				}
				store.Next = now
			},
		}
	})
}
