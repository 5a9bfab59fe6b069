package modeltest

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// A log that is full has joined its oldest entries. A settlement of a charge from before a reset finds nothing there.
func TestAResetEndsWhatAFullLogHolds(t *testing.T) {
	server := redistest.Start(t)
	store, clock, _ := virtualSmall(t, server.Addr(), nil)
	policy := newPolicy(t, nil, sash.Every(60, time.Hour))
	for _, units := range []int64{0, 5} {
		req := driver.Request{Key: fmt.Sprint("full ", units), Cost: 2, Policy: policy, MaySettle: true}
		old := charge(t, store, req)
		old.Units = units
		if err := store.Reset(t.Context(), req.Key, policy); err != nil {
			t.Fatal(err)
		}
		for n := range int64(2 * smallEntries) {
			clock.Advance(time.Millisecond)
			charge(t, store, req)
			if err := store.Settle(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			if left := remaining(t, store, req); left != 60-2*(n+1) {
				t.Fatalf("%d of 60 remain after %d calls of 2 and a settlement of before them", left, n+1)
			}
		}
	}
}

// charge makes a call, which must have room, and returns its settlement.
func charge(t *testing.T, store *redisstore.Store, req driver.Request) driver.Settlement {
	t.Helper()
	res, err := store.Decide(t.Context(), req)
	if err != nil || !res.Allowed() {
		t.Fatalf("allowed is %v, %v", res.Allowed(), err)
	}
	return driver.Settlement{Request: req, At: res.At, Source: res.Source}
}

// remaining returns the units that are left under the first limit of a request.
func remaining(t *testing.T, store *redisstore.Store, req driver.Request) int64 {
	t.Helper()
	req.Cost = 0
	res, err := store.Decide(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res.Statuses()[0].Remaining
}
