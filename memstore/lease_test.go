package memstore_test

import (
	"bytes"
	"testing"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A snapshot that is restored beside the store that made it, or after it, spends no unit twice.
func TestLeasesAreNotInASnapshot(t *testing.T) {
	store := memstore.New(nil)
	spend := func(s *memstore.Store) driver.Held {
		held, err := s.Spend(t.Context(), driver.Spending{Key: "k", Cost: 1, Longest: 60_000_000})
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	spend(store)
	e := driver.Errand{Key: "k", Began: spend(store).At, Longest: 60_000_000, Units: 10, Rest: -1}
	if kept, err := store.Bring(t.Context(), e); err != nil || !kept {
		t.Fatal(kept, err)
	}
	if held := spend(store); !held.Spent || held.Left != 9 {
		t.Fatalf("%+v", held)
	}
	var file bytes.Buffer
	if err := store.Snapshot(&file); err != nil {
		t.Fatal(err)
	}
	restored := memstore.New(nil)
	if err := restored.Restore(&file); err != nil {
		t.Fatal(err)
	}
	if held := spend(restored); held.Spent {
		t.Errorf("%+v", held)
	}
	if units, err := store.Return(t.Context(), "k", e.Began, 4); units != 5 || err != nil {
		t.Errorf("%d units, %v", units, err)
	}
}
