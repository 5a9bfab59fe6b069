package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/memstore"
)

// A clock that runs ahead for a moment and goes back, again and again, moves no booking: those who wait start in order, and
// no window of the instants of their answers holds more than its limit.
func TestBookingsOnAClockThatTrembles(t *testing.T) {
	server := redistest.Start(t)
	redis, clock, _ := virtual(t, server.Addr(), nil)
	memory := memstore.New(&memstore.Options{Now: clock.Now})
	for name, store := range map[string]driver.Store{"redis": redis, "memory": memory} {
		for _, a := range []sash.Algorithm{sash.SlidingLog, sash.SlidingBuckets} {
			t.Run(name+"/"+a.String(), func(t *testing.T) {
				met := make(map[string]int)
				for seed := range uint64(20 * *times) {
					if err := tremble(store, clock, seed, a, met); err != nil {
						t.Fatalf("history %d: %v", seed, err)
					}
				}
				if t.Log(met); met["the clock went back"] < 200 || met["a call went ahead of bookings"] < 30 {
					t.Error("this shows nothing")
				}
			})
		}
	}
}

// tremble books while the clock trembles.
func tremble(store driver.Store, clock *judge.Clock, seed uint64, a sash.Algorithm, met map[string]int) error {
	limits := []sash.Limit{sash.Every(5, 10*time.Millisecond), sash.Every(12, 40*time.Millisecond)}
	opts := &sash.Options{Algorithm: a}
	if a == sash.SlidingBuckets {
		opts.Resolution = 3 * time.Millisecond
	}
	policy, err := sash.NewPolicy(opts, limits...)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 31))
	req := driver.Request{Key: fmt.Sprint("trembles ", walks.Add(1)), Policy: policy}
	var (
		all   []judge.Call
		ahead time.Duration // of the clock
		last  int64
	)
	rests := int(seed % 2) // in every second history the queue is short, and other calls go ahead of it
	for range 400 {
		before := clock.Now()
		clock.Advance(time.Duration(rng.IntN(800)) * time.Microsecond)
		if rng.IntN(10) < rests {
			clock.Advance(time.Duration(rng.IntN(30)) * time.Millisecond)
		}
		if last > clock.Now().UnixMicro() && rng.IntN(3) == 0 { // bookings lie ahead
			to := time.Duration(rng.IntN(int(threshold.Log.Step)+1)) * time.Microsecond
			clock.Advance(to - ahead)
			ahead = to
		}
		if clock.Now().Before(before) {
			met["the clock went back"]++
		}
		req.Cost, req.Within = 1+rng.Int64N(2), driver.MaxAhead
		if rng.IntN(3) == 0 {
			req.Cost, req.Within = 1, 0 // it goes ahead of bookings, if it fits
		}
		answer, err := store.Decide(context.Background(), req)
		if err != nil {
			return err
		}
		if req.Within > 0 {
			if !answer.Allowed() || answer.At < last {
				return fmt.Errorf("after a booking at %d there is one at %d: %s", last, answer.At, shown(&answer))
			}
			last = answer.At
		} else if answer.Allowed() {
			met["a call went ahead of bookings"]++
		}
		if answer.Allowed() {
			all = append(all, judge.Call{At: time.UnixMicro(answer.At), Cost: req.Cost})
		}
	}
	return judge.CheckHistory(limits, all)
}
