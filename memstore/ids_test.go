package memstore

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/threshold"
)

// What a subject remembers of calls with an ID is bounded, and goes with time.
func TestIDsAreBounded(t *testing.T) {
	few(t, 50)
	now := time.UnixMicro(1_700_000_000_000_000)
	s := New(&Options{Now: func() time.Time { return now }})
	l := Must(sash.New(s, nil, sash.PerDay(10_000)))(t)
	ask := func(id string) {
		t.Helper()
		if res, err := l.AllowOnce(t.Context(), id, "k", 1); err != nil || !res.Allowed {
			t.Fatal(res.Allowed, err)
		}
	}
	held := func() int {
		ids := s.shard(s.hash("k")).subjects[s.hash("k")].ids
		if len(ids.known) != len(ids.ends) {
			t.Fatalf("%d IDs, and %d endings", len(ids.known), len(ids.ends))
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

// A settlement that was forgotten gives no units back: it may have been applied.
func TestAForgottenSettlementIsNotRepeated(t *testing.T) {
	few(t, 2)
	req := driver.Request{Key: "k", Cost: 10, Policy: Must(sash.NewPolicy(nil, sash.PerDay(100)))(t), MaySettle: true}
	store := New(&Options{Now: func() time.Time { return time.UnixMicro(1_700_000_000_000_000) }})
	var sets []driver.Settlement
	for i := range 3 {
		answer := Must(driver.Decide(t.Context(), store, req))(t)
		sets = append(sets, driver.Settlement{Request: req, At: answer.At, Source: answer.Source, ID: fmt.Sprint(i)})
		Check(t, drivertest.Of(store).Settle(t.Context(), sets[i]))
	}
	_ = Must(driver.Decide(t.Context(), store, req))(t)
	Check(t, drivertest.Of(store).Settle(t.Context(), sets[0]))
	if answer := Must(driver.Decide(t.Context(), store, driver.Request{Key: "k", Policy: req.Policy}))(t); answer.Remaining() != 90 {
		t.Errorf("%d of 100 are left after a charge of 10", answer.Remaining())
	}
}

// few sets how many IDs a subject remembers during a test.
func few(t *testing.T, n int) {
	before := threshold.IDs
	threshold.IDs = n
	t.Cleanup(func() { threshold.IDs = before })
}
