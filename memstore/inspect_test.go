package memstore_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// Inspect returns what was charged. The units in use of a window are the charges that lie in it.
func TestInspectReturnsTheCharges(t *testing.T) {
	for _, algorithm := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
		now := time.Unix(1_000_000, 0)
		store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
		limit := sash.Limit{Units: 10, Window: time.Minute}
		opts := &sash.Options{Algorithm: algorithm}
		if algorithm == sash.SlidingBuckets {
			opts.Resolution = 10 * time.Second
		}
		policy := newPolicy(t, opts, limit)
		limiter, err := sash.New(store, opts, limit)
		if err != nil {
			t.Fatal(err)
		}
		for i, cost := range []int64{3, 2, 9, 4} { // the third finds no room
			if i > 0 {
				now = now.Add(20 * time.Second)
			}
			if _, err := limiter.AllowN(t.Context(), "k", cost); err != nil {
				t.Fatal(err)
			}
		}
		entries, at := store.Inspect("k", policy)
		if !at.Equal(now) {
			t.Errorf("%v: the clock is %v, want %v", algorithm, at, now)
		}
		begin := time.Unix(1_000_000, 0)
		want := []memstore.Entry{{At: begin, Units: 3}, {At: begin.Add(20 * time.Second), Units: 2}, {At: begin.Add(60 * time.Second), Units: 4}}
		if len(entries) == 2 {
			want = want[1:] // what is exactly a window old counts no more, and may be gone
		}
		if len(entries) != len(want) {
			t.Fatalf("%v: %v, want %v", algorithm, entries, want)
		}
		for i, e := range entries {
			if !e.At.Equal(want[i].At) || e.Units != want[i].Units {
				t.Errorf("%v: entry %d is %v, want %v", algorithm, i, e, want[i])
			}
		}
		if other, _ := store.Inspect("other", policy); other != nil {
			t.Errorf("%v: a key without calls holds %v", algorithm, other)
		}
	}
}

// Algorithms without a log have no entries to return.
func TestInspectOfNoLogIsNil(t *testing.T) {
	store := memstore.New(nil)
	for _, algorithm := range []sash.Algorithm{sash.FixedWindow, sash.SlidingCounter, sash.GCRA} {
		opts, limit := &sash.Options{Algorithm: algorithm}, sash.Limit{Units: 10, Window: time.Minute}
		limiter, err := sash.New(store, opts, limit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		policy := newPolicy(t, opts, limit)
		if entries, _ := store.Inspect("k", policy); entries != nil {
			t.Errorf("%v: %v", algorithm, entries)
		}
	}
}
