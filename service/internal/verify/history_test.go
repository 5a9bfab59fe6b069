package verify

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// The definition, word by word, for histories of a few dozen microseconds.
type definition struct{ *history }

// used is the units admitted in (t − window, t] of the calls that count.
func (d definition) used(window, t int64, counts func(call) bool) (units int64) {
	for _, c := range d.Calls {
		if c.Allowed && c.At > t-window && c.At <= t && counts(c) {
			units += c.Cost
		}
	}
	return units
}

// over reports whether any window of any instant is too full.
func (d definition) over() bool {
	for t := int64(-100); t < 300; t++ {
		for _, l := range d.Limits {
			if d.used(l.Window.Microseconds(), t, func(call) bool { return true }) > l.Units {
				return true
			}
		}
	}
	return false
}

// wait returns how long a call has to wait after what came before it, with or without what came in its
// microsecond.
func (d definition) wait(c call, simultaneous bool) int64 {
	counts := func(other call) bool { return other.At < c.At || simultaneous && other.At == c.At }
	for wait := int64(0); ; wait++ {
		fits := true
		for _, l := range d.Limits {
			used := int64(0)
			for _, other := range d.Calls {
				if other.Allowed && counts(other) && other.At > c.At+wait-l.Window.Microseconds() {
					used += other.Cost
				}
			}
			fits = fits && used+c.Cost <= l.Units
		}
		if fits {
			return wait
		}
	}
}

// random returns a history of a correct limiter, on which some calls were changed at random.
func random(rng *rand.Rand, mistakes int) *history {
	h := &history{}
	var scaled []sash.Limit // a limiter's windows are a thousand times longer, and so are its times
	for range 1 + rng.IntN(3) {
		limit := sash.Every(3+rng.Int64N(6), time.Duration(2+rng.IntN(30))*time.Microsecond)
		same := false
		for _, l := range h.Limits {
			same = same || l.Window == limit.Window
		}
		if !same {
			h.Limits = append(h.Limits, limit)
			scaled = append(scaled, sash.Every(limit.Units, limit.Window*1000))
		}
	}
	now := time.UnixMicro(0)
	limiter, err := sash.New(memstore.New(&memstore.Options{Now: func() time.Time { return now }}), nil, scaled...)
	if err != nil {
		panic(err)
	}
	for range 60 {
		now = now.Add(time.Duration(rng.IntN(4)) * time.Millisecond)
		cost := 1 + rng.Int64N(3)
		res, err := limiter.AllowN(context.Background(), "k", cost)
		if err != nil {
			panic(err)
		}
		h.Calls = append(h.Calls, call{At: now.UnixMilli(), Cost: cost, Allowed: res.Allowed, Wait: res.RetryAfter.Milliseconds()})
	}
	for range mistakes {
		c := &h.Calls[rng.IntN(len(h.Calls))]
		switch rng.IntN(3) {
		case 0:
			c.Allowed, c.Wait = !c.Allowed, rng.Int64N(20)
		case 1:
			c.Cost = 1 + rng.Int64N(3)
		case 2:
			c.Wait += rng.Int64N(3) - 1
		}
	}
	rng.Shuffle(len(h.Calls), func(i, j int) { h.Calls[i], h.Calls[j] = h.Calls[j], h.Calls[i] })
	return h
}

func TestCheckAgreesWithTheDefinition(t *testing.T) {
	found := [3]int{}
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := random(rng, rng.IntN(4))
		d := definition{h}
		over, falseRefusals, wrong := d.over(), 0, 0
		for _, c := range h.Calls {
			if c.Allowed {
				continue
			}
			least, most := d.wait(c, false), d.wait(c, true)
			if most == 0 {
				falseRefusals++
			} else if c.Wait < least || c.Wait > most {
				wrong++
			}
		}
		f := h.check()
		if (f.OverAdmitted > 0) != over || f.FalseRefusals != falseRefusals || f.WrongWaits != wrong {
			t.Fatalf("seed %d: found %+v; by the definition over %v, %d false, %d wrong", seed, f, over, falseRefusals, wrong)
		}
		if f.Kept() != (f.Over == nil && f.False == nil && f.Wrong == nil) {
			t.Fatalf("seed %d: %+v has no example of what it found", seed, f)
		}
		for i, n := range []int{f.OverAdmitted, falseRefusals, wrong} {
			if n > 0 {
				found[i]++
			}
		}
	}
	for i, n := range found {
		if n < 50 {
			t.Errorf("only %d histories have fault %d: the test says little", n, i)
		}
	}
}

func TestACorrectLimiterKeepsItsPromises(t *testing.T) {
	for seed := range uint64(500) {
		if f := random(rand.New(rand.NewPCG(seed, 2)), 0).check(); !f.Kept() {
			t.Fatalf("seed %d: %+v", seed, f)
		}
	}
}

func TestTheWorstWindowIsTold(t *testing.T) {
	h := &history{Limits: []sash.Limit{sash.Every(3, 10*time.Microsecond)}}
	for _, at := range []int64{1, 2, 3, 11, 12, 20, 21, 21, 22, 22} {
		h.Calls = append(h.Calls, call{At: at, Cost: 1, Allowed: true})
	}
	f := h.check()
	if f.Over == nil || f.Over.Units != 5 || f.Over.Ends.UnixMicro() != 22 {
		t.Errorf("%+v", f.Over)
	}
}

func TestACallWithoutAnAnswerExcusesRefusals(t *testing.T) {
	limits := []sash.Limit{sash.Every(3, 10*time.Microsecond)}
	refusal := call{At: 20, Cost: 1, Wait: 9}
	for name, c := range map[string]struct {
		unknown  []unknown
		kept     bool
		doubtful int
	}{
		"none":               {nil, false, 0},
		"that was too small": {[]unknown{{After: 15, Cost: 2}}, false, 1},
		"before":             {[]unknown{{After: 15, Cost: 3}}, true, 1},
		"afterwards":         {[]unknown{{After: 21, Cost: 3}}, false, 0},
	} {
		h := &history{Limits: limits, Calls: []call{refusal}, Unknown: c.unknown}
		if f := h.check(); f.Kept() != c.kept || f.Doubtful != c.doubtful {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestAResolutionHoldsUnitsLonger(t *testing.T) {
	h := &history{
		Limits: []sash.Limit{sash.Every(1, 10*time.Microsecond)}, Hold: 5 * time.Microsecond,
		Calls: []call{{At: 1, Cost: 1, Allowed: true}, {At: 12, Cost: 1, Wait: 3}},
	}
	if f := h.check(); !f.Kept() {
		t.Errorf("within the resolution: %+v", f)
	}
	h.Calls[1].At = 16
	if f := h.check(); f.FalseRefusals != 1 {
		t.Errorf("after it: %+v", f)
	}
}
