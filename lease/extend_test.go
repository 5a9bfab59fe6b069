package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

func TestASlotIsExtendedUnderALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := sash.NewConcurrency(newStore(t, memstore.New(nil)), nil, 1, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := c.Start(t.Context(), "k")
		if err != nil || !slot.Allowed() {
			t.Fatalf("%+v, %v", slot, err)
		}
		for range 3 {
			time.Sleep(9 * time.Second)
			if held, err := slot.Extend(t.Context()); err != nil || !held {
				t.Fatalf("extended: %v, %v", held, err)
			}
		}
		if other, err := c.Start(t.Context(), "k"); err != nil || other.Allowed() {
			t.Errorf("another call got the slot: %v", err)
		}
		if err := slot.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if other, err := c.Start(t.Context(), "k"); err != nil || !other.Allowed() {
			t.Errorf("the slot was not released: %v", err)
		}
	})
}
