package modeltest

import (
	"fmt"
	"strings"
	"testing"

	"example.com/sash/driver"
)

// docs/decisions/0030-older-leases.md says how much memory the leases of a subject take.
func TestMemoryOfLeases(t *testing.T) {
	l := startLive(t)
	bytes := func(key string) int64 {
		t.Helper()
		n, err := l.client.MemoryUsage(t.Context(), "sash:held:"+key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ask := func(key string, cost int64) driver.Held {
		t.Helper()
		h, err := l.store.Spend(t.Context(), driver.Spending{Key: key, Cost: cost, Longest: leaseHour, Way: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	const key = "api:user:1234567#0123456789abcdef"
	note := strings.Repeat("n", 80)
	ask(key, 1)
	ask(key, driver.MaxUnits/2) // little demand, counted twice
	if n := bytes(key); n > 144 {
		t.Errorf("a subject with little traffic takes %d bytes, want at most 144", n)
	}
	for leases, most := range map[int]int64{1: 352, 2: 512, 4: 800} {
		key := fmt.Sprint(key[:len(key)-1], leases)
		for range 4 * leases {
			h := ask(key, driver.MaxUnits/2)
			if h.Errand == 0 {
				continue
			}
			e := driver.Errand{Key: key, Longest: leaseHour, Began: h.At, Units: 1, Note: note}
			if kept, err := l.store.Bring(t.Context(), e); err != nil || !kept {
				t.Fatalf("%v, %v", kept, err)
			}
			held, err := l.store.InspectLeases(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if len(held.Leases) == leases {
				break
			}
		}
		if n := bytes(key); n > most {
			t.Errorf("a subject with %d leases takes %d bytes, want at most %d", leases, n, most)
		} else {
			t.Logf("%d leases: %d bytes", leases, n)
		}
	}
	t.Logf("little traffic: %d bytes", bytes(key))
}
