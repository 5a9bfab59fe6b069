package window_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash/driver"

	"example.com/sash/internal/window"
)

// decide is what Decide means.
func decide(s window.State, now, cost int64, limits []driver.Limit, countRefused bool, out []driver.Status) uint64 {
	refusals := s.Look(now, cost, limits, out)
	if cost > 0 && (refusals == 0 || countRefused) {
		s.Charge(now, cost, limits)
		if refusals == 0 {
			cost = 0
		}
		s.Look(now, cost, limits, out)
	}
	return refusals
}

// A pair are two logs with the same past.
type pair struct{ one, other window.Log }

func (p *pair) decide(t *testing.T, now, cost int64, limits []driver.Limit) {
	t.Helper()
	got, want := make([]driver.Status, len(limits)), make([]driver.Status, len(limits))
	refusals := window.Decide(&p.one, now, cost, limits, p.one.CountRefused, got)
	wanted := decide(&p.other, now, cost, limits, p.other.CountRefused, want)
	if refusals != wanted || !slices.Equal(got, want) {
		t.Fatalf("cost %d at %d: %b %+v, want %b %+v", cost, now, refusals, got, wanted, want)
	}
}

func TestDecideIsALookAChargeAndALook(t *testing.T) {
	limits := []driver.Limit{
		{Units: 10, Window: 20},
		{Units: 15, Window: 50},
		{Units: 1000, Period: driver.Hour, Zone: time.UTC},
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		log := window.Log{Resolution: 1 + int64(seed%2)*4, CountRefused: seed%4 > 1}
		p := pair{log, log}
		now := time.Hour.Microseconds() - 200
		for range 300 {
			if random.IntN(5) == 0 {
				at, more := now-random.Int64N(30), -random.Int64N(3)
				p.one.Settle(now, at, more, limits)
				p.other.Settle(now, at, more, limits)
			}
			p.decide(t, now, random.Int64N(4), limits)
			now += random.Int64N(5) - random.Int64N(40)/39*30 // now and then the clock goes back
		}
	}
}
