package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// What no window counts any more leaves a sorted set, whether one leaves as one comes or many left since the last call,
// and what a longer window still counts stays.
func TestMembersLeaveASortedSetWithTheirWindow(t *testing.T) {
	server := redistest.Start(t)
	store, clock, scripts := virtual(t, server.Addr(), nil)
	policy := func(limits ...sash.Limit) *driver.Policy {
		p, err := sash.NewPolicy(&sash.Options{Algorithm: sash.SortedSetLog}, limits...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	short, long := policy(sash.Every(1000, 10*time.Second)), policy(sash.Every(1000, 15*time.Second))
	call := func(p *driver.Policy) int64 {
		t.Helper()
		if _, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: p}); err != nil {
			t.Fatal(err)
		}
		return scripts.client.ZCard(t.Context(), store.Key("k", p)).Val() - 1 // one member is the head
	}
	for i := range 100 {
		clock.Advance(time.Second)
		if n, want := call(short), int64(min(i+1, 10)); n != want {
			t.Fatalf("call %d, one a second: %d members, want %d", i, n, want)
		}
	}
	for range 5 {
		call(short)
		clock.Advance(time.Millisecond)
	}
	clock.Advance(11 * time.Second)
	if n := call(short); n != 1 {
		t.Errorf("after a window without calls: %d members, want 1", n)
	}
	clock.Advance(time.Millisecond)
	call(long) // from now on the key keeps 15 seconds, and its expiry is later already
	clock.Advance(12 * time.Second)
	call(short)
	clock.Advance(time.Second)
	if n := call(short); n != 4 {
		t.Errorf("a longer window has been seen, and %d members are left, want 4", n)
	}
}
