package lease_test

import (
	"math"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/lease"
	"example.com/sash/memstore"
)

// A waiting store is one whose servers owe an answer.
type waiting struct {
	*memstore.Store
	wait time.Duration
}

func (w waiting) Waits() time.Duration        { return w.wait }
func (w waiting) Silent(time.Duration) string { return "" }

// What stands before leases learns of a home that is silent, and of a region's own store that is.
func TestLeasesWaitForHomeAndHolder(t *testing.T) {
	memory := memstore.New(nil)
	for name, c := range map[string]struct {
		home, near driver.Store
		want       time.Duration
	}{
		"home":    {waiting{memory, 3 * time.Second}, waiting{memory, time.Second}, 3 * time.Second},
		"holder":  {waiting{memory, 0}, waiting{memory, time.Second}, time.Second},
		"memory":  {waiting{memory, time.Second}, memory, time.Second},
		"unknown": {struct{ driver.Store }{memory}, memory, math.MaxInt64},
	} {
		store, err := lease.Shared(c.home, c.near.(driver.Holder), time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		if waits, known := driver.Waits(store); !known || waits != c.want {
			t.Errorf("%s: it waits for %v, %v, want %v", name, waits, known, c.want)
		}
	}
}
