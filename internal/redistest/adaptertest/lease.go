package adaptertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/sash/driver"
)

const longest = int64(time.Hour / time.Microsecond)

// A lease is spent by all clients, and units whose reply is lost are spent once.
func testLeases(t *testing.T, open Open) {
	for _, c := range losses {
		t.Run(c.name, func(t *testing.T) {
			conn, direct, p, _ := through(t, open, c.opts)
			brought(t, direct.Store, "k", 10)
			spent := func(h driver.Held, err error, left int64) {
				t.Helper()
				if err != nil || !h.Spent || h.Left != left {
					t.Errorf("a call of 2 gets %+v, %v, want %d left", h, err, left)
				}
			}
			s := driver.Spending{Key: "k", Cost: 2, Longest: longest}
			h, err := conn.Store.Spend(patient(t), s)
			spent(h, err, 8)
			p.forget()
			p.lose(c.fault, nil)
			if h, err := conn.Store.Spend(context.Background(), s); err == nil || h != (driver.Held{}) || p.scripts() != 1 {
				t.Errorf("without a reply a call gets %+v, %v after %d scripts, want an error after one", h, err, p.scripts())
			}
			p.heal()
			usable(t, conn)
			h, err = direct.Store.Spend(patient(t), s)
			spent(h, err, 4)
			if n, err := conn.Store.Return(patient(t), "k", began(t, direct), 0); n != 4 || err != nil {
				t.Errorf("%d units are returned, %v", n, err)
			}
			if err := conn.Store.Forget(patient(t), "k"); err != nil {
				t.Error(err)
			}
			if leases, err := direct.Store.InspectLeases(patient(t), "k"); leases != nil || err != nil {
				t.Errorf("a key that was forgotten has %+v, %v", leases, err)
			}
		})
	}
}

// SpendLeases spends a lease of each of many keys, which are on several servers.
func SpendLeases(t testing.TB, store driver.Holder) {
	t.Helper()
	for i := range 40 {
		key := fmt.Sprint("leased ", i)
		brought(t, store, key, 2)
		for left := int64(1); left >= 0; left-- {
			h, err := store.Spend(patient(t), driver.Spending{Key: key, Cost: 1, Longest: longest})
			if err != nil || !h.Spent || h.Left != left {
				t.Errorf("a unit of %q: %+v, %v, want %d left", key, h, err, left)
			}
		}
	}
}

// brought brings a lease.
func brought(t testing.TB, store driver.Holder, key string, units int64) {
	t.Helper()
	for range 3 {
		h, err := store.Spend(patient(t), driver.Spending{Key: key, Cost: 1, Longest: longest})
		if err != nil {
			t.Fatal(err)
		}
		if h.Errand == 0 {
			continue
		}
		kept, err := store.Bring(patient(t), driver.Errand{Key: key, Longest: longest, Began: h.At, Units: units})
		if err != nil || !kept {
			t.Fatalf("the lease is kept: %v, %v", kept, err)
		}
		return
	}
	t.Fatal("nobody is sent on an errand")
}

// began returns when the errand of the first lease began.
func began(t *testing.T, c Conn) int64 {
	t.Helper()
	leases, err := c.Store.InspectLeases(patient(t), "k")
	if err != nil || leases == nil || len(leases.Leases) == 0 {
		t.Fatalf("the key holds %+v, %v", leases, err)
	}
	return leases.Leases[0].Began.UnixMicro()
}
