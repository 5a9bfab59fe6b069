package memstore_test

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

// A booker is a store on a clock, and requests of one policy.
type booker struct {
	*testing.T
	*memstore.Store
	clock  *judge.Clock
	policy *driver.Policy
}

func newBooker(t *testing.T, opts memstore.Options, limits ...sash.Limit) *booker {
	clock := judge.NewClock(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	opts.Now = clock.Now
	policy := newPolicy(t, nil, limits...)
	return &booker{t, memstore.New(&opts), clock, policy}
}

func (b *booker) request(key string, within time.Duration) driver.Request {
	return driver.Request{Key: key, Cost: 1, Policy: b.policy, Within: within.Microseconds(), MaySettle: true}
}

// book books, and fails unless the delay is the one wanted.
func (b *booker) book(key string, want time.Duration) driver.Answer {
	b.Helper()
	answer, err := driver.Decide(b.Context(), b.Store, b.request(key, time.Hour))
	if err != nil || !answer.Allowed() || answer.Delay != want.Microseconds() || answer.At != b.clock.Now().Add(want).UnixMicro() {
		b.Fatalf("booked %v: %+v, want %v", err, answer, want)
	}
	return answer
}

func (b *booker) left(key string) int64 {
	b.Helper()
	answer, err := driver.Decide(b.Context(), b.Store, driver.Request{Key: key, Policy: b.policy})
	if err != nil {
		b.Fatal(err)
	}
	return answer.Remaining()
}

func TestAKeyWithBookingsIsNotEvicted(t *testing.T) {
	b := newBooker(t, memstore.Options{MaxBytes: memstore.KeyBytes}, sash.Every(3, time.Second))
	for range 2 { // there is always a unit left
		req := b.request("k", time.Minute)
		req.Cost = 2
		if _, err := driver.Decide(t.Context(), b.Store, req); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.Advance(999 * time.Millisecond)
	if _, err := driver.Decide(t.Context(), b.Store, b.request("new", 0)); err == nil {
		t.Error("a new key took the place of one with a booking ahead")
	}
	b.clock.Advance(time.Millisecond)
	if _, err := driver.Decide(t.Context(), b.Store, b.request("new", 0)); err != nil {
		t.Errorf("once the booking has started: %v", err)
	}
}

// A key is held until its last booking has left the window.
func TestAKeyLivesAsLongAsItsBookings(t *testing.T) {
	b := newBooker(t, memstore.Options{}, sash.Every(1, time.Second))
	for i := range 10 {
		b.book("k", time.Duration(i)*time.Second)
	}
	b.clock.Advance(10*time.Second - time.Microsecond)
	if n := b.Swept().Keys; n != 1 || b.left("k") != 0 {
		t.Errorf("%d keys, %d left, just before the last booking leaves", n, b.left("k"))
	}
	b.clock.Advance(time.Microsecond)
	if n := b.Swept().Keys; n != 0 || b.left("k") != 1 {
		t.Errorf("%d keys, %d left, when the last booking has left", n, b.left("k"))
	}
}
