package modeltest

import (
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// One caller is sent for a lease, which all spend until it ends; what is left of it can be taken out.
func TestALeaseIsFetchedOnceAndSpent(t *testing.T) {
	store, clock, _ := virtual(t, redistest.Start(t).Addr(), nil)
	const longest = 1_000_000
	spend := func(cost int64) driver.Held {
		t.Helper()
		h, err := store.Spend(t.Context(), driver.Spending{Key: "k", Cost: cost, Longest: longest, Way: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := spend(1); h != (driver.Held{At: h.At, Alone: true}) {
		t.Errorf("the first call gets %+v", h)
	}
	errand := spend(1)
	if errand != (driver.Held{At: errand.At, Errand: 64, Rest: -1}) { // two calls in no time are a jump
		t.Errorf("the second call gets %+v, want an errand for 64 units", errand)
	}
	clock.Advance(20 * time.Millisecond)
	if h := spend(1); h != (driver.Held{At: h.At, Wait: 30_000}) {
		t.Errorf("while a caller is on an errand another one gets %+v", h)
	}
	kept, err := store.Bring(t.Context(), driver.Errand{
		Key: "k", Longest: longest, Began: errand.At, Units: 100, Delay: 5000, Rest: 7, Note: "note",
	})
	if err != nil || !kept {
		t.Fatalf("the lease is not kept: %v", err)
	}
	if h := spend(4); h != (driver.Held{At: h.At, Refused: 5005, Note: "note"}) {
		t.Errorf("before the lease starts a call gets %+v", h)
	}
	clock.Advance(5005 * time.Microsecond) // and what the clock may gain
	if h := spend(4); h != (driver.Held{At: h.At, Spent: true, Left: 96, Note: "note", Noted: 5005}) {
		t.Errorf("a call gets %+v", h)
	}
	if n, err := store.Return(t.Context(), "k", errand.At, 2); n != 94 || err != nil {
		t.Errorf("%d units were taken out, %v", n, err)
	}
	if h := spend(2); !h.Spent || h.Left != 0 {
		t.Errorf("the last units: %+v", h)
	}
	if err := store.Forget(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if h := spend(1); !h.Alone {
		t.Errorf("after the leases were forgotten a call gets %+v", h)
	}
}
