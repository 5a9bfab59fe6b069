package memstore_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

func TestADecisionAllocatesNothing(t *testing.T) {
	// With a resolution, so that the log has all the entries that it needs before the counting begins.
	opts := &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Hour}
	for _, c := range []struct {
		name   string
		limits []sash.Limit
		want   float64
	}{
		{"admitted", []sash.Limit{sash.PerDay(1_000_000)}, 0},
		{"refused", []sash.Limit{sash.PerDay(1)}, 0},
		{"two limits", []sash.Limit{sash.PerDay(1_000_000), sash.Every(2_000_000, 7*24*time.Hour)}, 0},
		{"more limits than a result holds", []sash.Limit{sash.PerHour(1), sash.PerDay(2), sash.Every(3, 48*time.Hour)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := memstore.Must(sash.New(memstore.New(nil), opts, c.limits...))(t)
			if got := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(t.Context(), "k") }); got != c.want {
				t.Errorf("%v allocations a decision, want %v", got, c.want)
			}
		})
	}
}
