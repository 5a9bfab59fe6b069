package memstore_test

import (
	"testing"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestLeasesAreSpentAndReturned(t *testing.T) {
	store := memstore.New(nil)
	spend := func() driver.Held {
		held, err := store.Spend(t.Context(), driver.Spending{Key: "k", Cost: 1, Longest: 60_000_000})
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	spend()
	e := driver.Errand{Key: "k", Began: spend().At, Longest: 60_000_000, Units: 10, Rest: -1}
	if kept, err := store.Bring(t.Context(), e); err != nil || !kept {
		t.Fatal(kept, err)
	}
	if held := spend(); !held.Spent || held.Left != 9 {
		t.Fatalf("%+v", held)
	}
	if units, err := store.Return(t.Context(), "k", e.Began, 4); units != 5 || err != nil {
		t.Errorf("%d units, %v", units, err)
	}
}
