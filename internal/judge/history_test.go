package judge

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// The definition, word by word, for histories of a few dozen microseconds.
type definition struct{ *History }

// over reports whether any window of any instant is too full.
func (d definition) over() bool {
	for t := range 400 {
		for _, l := range d.Limits {
			used := int64(0)
			for _, c := range d.Calls {
				if now := micro(t - 100); !c.Refused && c.At.After(now.Add(-l.Window)) && !c.At.After(now) {
					used += c.Cost
				}
			}
			if used > l.Units {
				return true
			}
		}
	}
	return false
}

// wait returns how long a call has to wait after what came before it, with or without what came in its microsecond.
func (d definition) wait(c Call, simultaneous bool) time.Duration {
	for wait := time.Duration(0); ; wait += time.Microsecond {
		fits := true
		for _, l := range d.Limits {
			used := int64(0)
			for _, other := range d.Calls {
				before := other.At.Before(c.At) || simultaneous && other.At.Equal(c.At)
				if before && !other.Refused && other.At.After(c.At.Add(wait-l.Window)) {
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

func micro(n int) time.Time { return time.UnixMicro(int64(n)) }

// random returns a history of a correct limiter, on which some calls were changed at random.
func random(rng *rand.Rand, mistakes int) *History {
	h := &History{}
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
	clock := NewClock(time.UnixMicro(0))
	limiter, err := sash.New(memstore.New(&memstore.Options{Now: clock.Now}), nil, scaled...)
	if err != nil {
		panic(err)
	}
	for range 60 {
		clock.Advance(time.Duration(rng.IntN(4)) * time.Millisecond)
		cost := 1 + rng.Int64N(3)
		res, err := limiter.AllowN(context.Background(), "k", cost)
		if err != nil {
			panic(err)
		}
		h.Calls = append(h.Calls, Call{
			At: time.UnixMicro(clock.Now().UnixMilli()), Cost: cost, Refused: !res.Allowed, Wait: res.RetryAfter / 1000,
		})
	}
	for range mistakes {
		c := &h.Calls[rng.IntN(len(h.Calls))]
		switch rng.IntN(3) {
		case 0:
			c.Refused, c.Wait = !c.Refused, time.Duration(rng.IntN(20))*time.Microsecond
		case 1:
			c.Cost = 1 + rng.Int64N(3)
		case 2:
			c.Wait += time.Duration(rng.IntN(3)-1) * time.Microsecond
		}
	}
	rng.Shuffle(len(h.Calls), func(i, j int) { h.Calls[i], h.Calls[j] = h.Calls[j], h.Calls[i] })
	return h
}

func TestCheckAgreesWithTheDefinition(t *testing.T) {
	found := [3]int{}
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mistakes := rng.IntN(4)
		h := random(rng, mistakes)
		d := definition{h}
		over, falseRefusals, wrong := d.over(), 0, 0
		for _, c := range h.Calls {
			if !c.Refused {
				continue
			}
			least, most := d.wait(c, false), d.wait(c, true)
			if most == 0 {
				falseRefusals++
			} else if c.Wait < least || c.Wait > most {
				wrong++
			}
		}
		f := h.Check()
		if (f.OverAdmitted > 0) != over || f.FalseRefusals != falseRefusals || f.WrongWaits != wrong {
			t.Fatalf("seed %d: found %+v; by the definition over %v, %d false, %d wrong", seed, f, over, falseRefusals, wrong)
		}
		if mistakes == 0 && !f.Kept() {
			t.Fatalf("seed %d: a correct limiter broke %+v", seed, f)
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

func TestACallWithoutAnAnswerExcusesRefusals(t *testing.T) {
	limits := []sash.Limit{sash.Every(3, 10*time.Microsecond)}
	refusal := Call{At: micro(20), Cost: 1, Refused: true, Wait: 9 * time.Microsecond}
	for name, c := range map[string]struct {
		unknown  []Unknown
		kept     bool
		doubtful int
	}{
		"none":               {nil, false, 0},
		"that was too small": {[]Unknown{{After: micro(15), Cost: 2}}, false, 1},
		"before":             {[]Unknown{{After: micro(15), Cost: 3}}, true, 1},
		"afterwards":         {[]Unknown{{After: micro(21), Cost: 3}}, false, 0},
	} {
		h := &History{Limits: limits, Calls: []Call{refusal}, Unknown: c.unknown}
		if f := h.Check(); f.Kept() != c.kept || f.Doubtful != c.doubtful {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestAResolutionHoldsUnitsLonger(t *testing.T) {
	h := &History{
		Limits: []sash.Limit{sash.Every(1, 10*time.Microsecond)}, Hold: 5 * time.Microsecond,
		Calls: []Call{{At: micro(1), Cost: 1}, {At: micro(12), Cost: 1, Refused: true, Wait: 3 * time.Microsecond}},
	}
	if f := h.Check(); !f.Kept() {
		t.Errorf("within the resolution: %+v", f)
	}
	h.Calls[1].At = micro(16)
	if f := h.Check(); f.FalseRefusals != 1 {
		t.Errorf("after it: %+v", f)
	}
}

func TestPeriodsOfTheCalendar(t *testing.T) {
	zone := time.FixedZone("east", 2*3600)
	limits := []sash.Limit{sash.Every(100, time.Second), sash.PerCalendar(1, sash.CalendarDay, zone)}
	midnight := time.Date(2026, 5, 2, 0, 0, 0, 0, zone)
	around := []Call{{At: midnight, Cost: 1}, {At: midnight.Add(-1), Cost: 1}} // in any order
	if err := CheckHistory(limits, around); err != nil {
		t.Error(err)
	}
	for hour, wrong := range map[time.Duration]bool{23: false, 24: true} {
		if err := CheckRefusals(limits, around, []Call{{At: midnight.Add(hour * time.Hour), Cost: 1}}); (err != nil) != wrong {
			t.Errorf("a refusal after %d hours: %v", hour, err)
		}
	}
	around = append(around, Call{At: midnight.Add(23 * time.Hour), Cost: 1})
	if err := CheckHistory(limits, around); err == nil || !strings.HasPrefix(err.Error(), limits[1].String()) {
		t.Errorf("two units in one day: %v", err)
	}
}

// By brute force: the units of all charges that lie in a window as a whole.
func TestTheFullestWindowHoldsWhatLiesInItAsAWhole(t *testing.T) {
	const window = 12
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		certain := random.IntN(2) // or else the instants are known
		var charges []Charge
		for range 1 + random.IntN(20) {
			from := random.Int64N(60)
			charges = append(charges, Charge{from, from + int64(certain*random.IntN(window+3)), 1 + random.Int64N(3)})
		}
		inside := func(end int64) (units int64) {
			for _, c := range charges {
				if c.From > end-window && c.To <= end {
					units += c.Units
				}
			}
			return units
		}
		var want int64
		for end := range int64(90) {
			want = max(want, inside(end))
		}
		given := slices.Clone(charges)
		full, over := Fullest(charges, window, want)
		if full.Units != want || over != 0 || full.From != full.To-window || inside(full.To) != want {
			t.Fatalf("seed %d: %+v, want %d units: %v", seed, full, want, charges)
		}
		if _, over := Fullest(charges, window, want-1); want > 0 && over == 0 {
			t.Fatalf("seed %d: one unit too many is not seen", seed)
		}
		if !slices.Equal(charges, given) {
			t.Fatalf("seed %d: the charges are changed, and another window would be judged without some", seed)
		}
	}
}
