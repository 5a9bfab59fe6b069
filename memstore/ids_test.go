package memstore

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// The ID that ends first is forgotten first, whenever it came: one that has expired, before any other.
func TestIDsThatHaveExpiredAreForgottenFirst(t *testing.T) {
	few(t, 10)
	now := time.UnixMicro(1_700_000_000_000_000)
	s := New(&Options{Now: func() time.Time { return now }})
	l := Must(sash.New(s, nil, sash.PerDay(1000)))(t)
	left := func() int64 {
		res := Must(l.Peek(t.Context(), "k"))(t)
		return res.Remaining
	}
	ask := func(id string) {
		t.Helper()
		if res, err := l.AllowOnce(t.Context(), id, "k", 1); err != nil || !res.Allowed {
			t.Fatal(res.Allowed, err)
		}
	}
	reserve := func() *sash.Reservation {
		r, err := l.Reserve(t.Context(), "k", 100, nil)
		if err != nil || !r.Allowed() {
			t.Fatal(err)
		}
		return r
	}
	open, settled := reserve(), reserve()
	if err := settled.Cancel(t.Context()); err != nil { // remembered for a day, in front of all others
		t.Fatal(err)
	}
	for i := range 40 {
		ask(fmt.Sprint(i))
		now = now.Add(time.Minute)
	}
	if settled := reserve(); settled.Cancel(t.Context()) != nil {
		t.Fatal("not settled")
	}
	if err := open.Cancel(t.Context()); err != nil || left() != 1000-40 {
		t.Errorf("%d left, want %d, %v", left(), 1000-40, err)
	}

	now = now.Add(time.Hour)
	ask("again")
	now = now.Add(driver.RepeatTime) // "again" has expired
	for i := range 7 {
		ask(fmt.Sprint("before ", i))
	}
	for _, id := range []string{"again", "second last", "last", "very last"} {
		ask(id)
	}
	before := left()
	if ask("again"); left() != before {
		t.Error("a call is charged again after three other calls")
	}
}

// few sets how many IDs a subject remembers during a test.
func few(t *testing.T, n int) {
	before := threshold.IDs
	threshold.IDs = n
	t.Cleanup(func() { threshold.IDs = before })
}
