package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// A log that is full, with one unit held in its oldest entry and nothing in all the others, which were given
// back: what is held counts as more calls come and go, and can be given back. The log is written as a
// value, because 100,000 calls that overlap take a while; writing it by the scripts gives the same one.
func TestAFullLogForgetsNothingThatIsHeld(t *testing.T) {
	server := redistest.Start(t)
	store, clock, scripts := virtual(t, server.Addr(), nil)
	const hold = 24 * time.Hour
	policy := newPolicy(t, nil, sash.Every(3, hold))
	req := driver.Request{Key: "full", Cost: 1, Policy: policy, MaySettle: true}
	made := clock.Now().UnixMicro()
	write := func() {
		const slots = sash.MaxEntries
		keep := hold.Microseconds()
		value := fields(nil, 1, 2, 1, 0, 4, slots, 6, 0, 7, keep, 6, 3, 7, made+2*keep, 6, slots, 6, 1, 7, made+slots-1)
		value = fields(value, 7, made, 5, 1)
		for i := int64(1); i < slots; i++ {
			value = fields(value, 7, made+i, 5, 0)
		}
		value = fields(value, 6, 0)
		for range (slots + 63) / 64 {
			value = fields(value, 6, 1)
		}
		value = fields(value, 7, 0, 7, made, 7, 0)
		if err := scripts.client.Set(t.Context(), store.Key(req.Key, policy), value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	clock.Advance(time.Second)
	decide := func() driver.Answer {
		t.Helper()
		res, err := store.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	used := func() int64 {
		t.Helper()
		look := req
		look.Cost = 0
		res, err := store.Decide(t.Context(), look)
		if err != nil {
			t.Fatal(err)
		}
		return 3 - res.Remaining()
	}
	settle := func(res driver.Answer) {
		t.Helper()
		if err := store.Settle(t.Context(), driver.Settlement{Request: req, At: res.At, Source: res.Source}); err != nil {
			t.Fatal(err)
		}
	}
	held := driver.NewAnswer(made, 0, nil)
	previous := decide()
	for i := range 300 { // over several blocks of sums
		clock.Advance(time.Millisecond)
		now := decide()
		if !now.Allowed() || used() != 3 {
			t.Fatalf("call %d: allowed %v, %d in flight, want the held one and two", i, now.Allowed(), used())
		}
		if res := decide(); res.Allowed() {
			t.Fatalf("call %d: a fourth is in flight, of 3", i)
		}
		settle(previous)
		if used() != 2 {
			t.Fatalf("call %d: %d in flight, want the held one and one", i, used())
		}
		previous = now
	}
	settle(held)
	if used() != 1 {
		t.Errorf("%d in flight after the held one ended, want 1", used())
	}
	settle(previous)
	if used() != 0 {
		t.Errorf("%d in flight after all have ended", used())
	}
}

// fields appends big-endian numbers: pairs of a size in bytes and a value.
func fields(b []byte, pairs ...int64) []byte {
	for i := 0; i < len(pairs); i += 2 {
		for shift := 8 * (pairs[i] - 1); shift >= 0; shift -= 8 {
			b = append(b, byte(pairs[i+1]>>shift))
		}
	}
	return b
}
