package outside

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

func harness(store func(now func() time.Time) driver.Store) func(*testing.T) storetest.Harness {
	return func(*testing.T) storetest.Harness {
		clock := time.UnixMicro(1_700_000_000_000_000)
		now := func() time.Time { return clock }
		return storetest.Harness{
			Store:   store(now),
			Now:     now,
			Advance: func(d time.Duration) { clock = clock.Add(d) },
		}
	}
}

func TestStore(t *testing.T) {
	storetest.Run(t, harness(func(now func() time.Time) driver.Store { return New(now) }), sash.SlidingLog)
}

func TestDecorator(t *testing.T) {
	storetest.Run(t, harness(func(now func() time.Time) driver.Store {
		return &Counter{Passthrough: driver.Passthrough{Next: memstore.New(&memstore.Options{Now: now})}}
	}))
}

func TestADecoratorHasThePowersOfItsStore(t *testing.T) {
	over := func(store driver.Store) driver.Store { return &Counter{Passthrough: driver.Passthrough{Next: store}} }
	if _, ok := driver.As[driver.Deduplicator](over(memstore.New(nil))); !ok {
		t.Error("over memstore it does not know IDs")
	}
	if _, ok := driver.As[driver.Deduplicator](over(New(time.Now))); ok {
		t.Error("over a store without IDs it knows them")
	}
}
