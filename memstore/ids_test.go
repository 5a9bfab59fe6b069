package memstore

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// What a subject remembers of calls with an ID is bounded, and goes with time.
func TestIDsAreBounded(t *testing.T) {
	few(t, 50)
	now := time.UnixMicro(1_700_000_000_000_000)
	s := New(&Options{Now: func() time.Time { return now }})
	l, err := sash.New(s, nil, sash.PerDay(10_000))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(id string) {
		t.Helper()
		if res, err := l.AllowOnce(t.Context(), id, "k", 1); err != nil || !res.Allowed {
			t.Fatal(res.Allowed, err)
		}
	}
	held := func() int {
		ids := subjectOf(s, "k").ids
		if len(ids.known) != len(ids.order) {
			t.Fatalf("%d IDs, and %d in the order", len(ids.known), len(ids.order))
		}
		return len(ids.known)
	}
	for i := range 200 {
		ask(fmt.Sprint(i))
		if held() > 50 {
			t.Fatalf("%d IDs are remembered, of 50", held())
		}
	}
	ask("199") // the newest are there
	ask("150")
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 10_000-200 {
		t.Errorf("%d left, %v", res.Remaining, err)
	}
	now = now.Add(driver.RepeatTime)
	for i := range 17 { // each forgets up to four
		ask(fmt.Sprint("later ", i))
	}
	if held() != 17 {
		t.Errorf("%d IDs are remembered, want the last 17", held())
	}
}

// few sets how many IDs a subject remembers during a test.
func few(t *testing.T, n int) {
	before := threshold.IDs
	threshold.IDs = n
	t.Cleanup(func() { threshold.IDs = before })
}

func subjectOf(s *Store, key string) *subject {
	hash := s.hash(key)
	return s.shard(hash).subjects[hash]
}
