package window_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// A plan is the definition of bookings: every charge with its instant, and sums of all of them.
type plan struct {
	limits  []driver.Limit
	charges []planned
	gaps    bool // units came back while bookings lay ahead, and some do
}

type planned struct{ at, units int64 }

// used returns the units in the window of a limit that ends at an instant.
func (p *plan) used(l *driver.Limit, at int64) (used int64) {
	cut, _ := l.Cut(at)
	for _, c := range p.charges {
		if cut < c.at && c.at <= at {
			used += c.units
		}
	}
	return used
}

func (p *plan) latest() (at int64) {
	for _, c := range p.charges {
		at = max(at, c.at)
	}
	return at
}

// gap returns the first instant at which a booking fits and delays no other one. A window has room again where a charge leaves.
func (p *plan) gap(now, cost int64) (at int64, ok bool) {
	instants := []int64{now}
	for i := range p.limits {
		for _, c := range p.charges {
			leaves := c.at + p.limits[i].Window
			if p.limits[i].Period != 0 {
				_, leaves = p.limits[i].Bounds(c.at)
			}
			if now < leaves && leaves < p.latest() {
				instants = append(instants, leaves)
			}
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		if !p.exceeds(at, cost) {
			return at, true
		}
	}
	return 0, false
}

// earliest returns the first instant at which a booking fits, behind all charges.
func (p *plan) earliest(now, cost int64) int64 {
	from := max(now, p.latest())
	instants := []int64{from}
	for i := range p.limits {
		l := &p.limits[i]
		if l.Period != 0 {
			_, end := l.Bounds(from)
			instants = append(instants, end)
		}
		for _, c := range p.charges {
			instants = append(instants, c.at+l.Window)
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		fits := at >= from
		for i := range p.limits {
			fits = fits && p.used(&p.limits[i], at)+cost <= p.limits[i].Units
		}
		if fits {
			return at
		}
	}
	return -1
}

// exceeds reports whether any window that ends at now or later holds more than its limit, with a charge of now.
func (p *plan) exceeds(now, cost int64) bool {
	with := plan{limits: p.limits, charges: append(slices.Clone(p.charges), planned{now, cost})}
	for _, c := range with.charges {
		for i := range p.limits {
			if l := &p.limits[i]; c.at >= now && with.used(l, c.at) > l.Units {
				return true
			}
		}
	}
	return false
}

// A booking starts at the earliest instant behind all others, a call that is not booked delays none, and no window that
// ends at any instant exceeds its limit.
func TestBookingsAreThoseOfTheDefinition(t *testing.T) {
	hour := time.Hour.Microseconds()
	booked, between, refused, filled := 0, 0, 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		limits := []driver.Limit{{Units: 10, Window: 20}, {Units: 14, Window: 50}, {Units: 60, Period: driver.Hour, Zone: time.UTC}}
		random.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		def := &plan{limits: limits[:1+random.IntN(3)]}
		log := &window.Log{Resolution: 1}
		out := make([]driver.Status, len(def.limits))
		now := start/hour*hour - 100
		for step := range 150 {
			now += random.Int64N(6)
			cost := 1 + random.Int64N(6)
			where := fmt.Sprintf("seed %d, step %d: cost %d at %d", seed, step, cost, now)
			def.gaps = def.gaps && now < def.latest()
			if n := len(def.charges); seed%4 != 0 && n > 0 && random.IntN(3) == 0 {
				c := &def.charges[n-1-random.IntN(min(n, 10))]
				if back := 1 + random.Int64N(c.units); c.at > now-20 {
					log.Settle(now, c.at, -back, def.limits)
					def.gaps = now < def.latest()
					if c.units -= back; c.units == 0 {
						def.charges = slices.DeleteFunc(def.charges, func(c planned) bool { return c.units == 0 })
					}
				}
			} else if random.IntN(2) == 0 {
				refusals := window.Decide(log, now, cost, def.limits, false, out)
				if want := def.exceeds(now, cost); (refusals != 0) != want {
					t.Fatalf("%s: refusals %b, want %v", where, refusals, want)
				} else if !want {
					if now < def.latest() {
						between++
					}
					def.charges = append(def.charges, planned{now, cost})
				} else {
					wait := int64(0)
					for i := range out {
						wait = max(wait, out[i].Retry)
					}
					if at := def.earliest(now, cost); now+wait != at {
						t.Fatalf("%s: refused for %d, want until %d", where, wait, at)
					}
				}
			} else {
				within := random.Int64N(100)
				at, refusals := window.Book(log, now, within, cost, def.limits, out)
				want := def.earliest(now, cost)
				if at, ok := def.gap(now, cost); def.gaps && ok && within > 1 {
					want = at
					filled++
				}
				switch {
				case want-now <= within:
					if refusals != 0 || at != want {
						t.Fatalf("%s: booked at %d, refusals %b, want %d", where, at, refusals, want)
					}
					def.charges = append(def.charges, planned{at, cost})
					booked++
				case refusals == 0:
					t.Fatalf("%s: booked at %d, want %d, which is not within %d", where, at, want, within)
				default:
					refused++
				}
			}
			for i := range def.limits { // what remains is the highest cost that is admitted
				window.Decide(log, now, 0, def.limits, false, out)
				one := plan{limits: def.limits[i : i+1], charges: def.charges}
				if left := out[i].Remaining; one.exceeds(now, left) && left > 0 || left < def.limits[i].Units && !one.exceeds(now, left+1) {
					t.Fatalf("%s: %d remain of %v", where, left, def.limits[i].String())
				}
			}
		}
	}
	if booked < 1000 || between < 500 || refused < 1000 || filled < 400 {
		t.Errorf("%d were booked, %d of them in gaps, %d charged before bookings, and %d bookings refused", booked, filled, between, refused)
	}
}

// A clock that goes back moves bookings with it: those who sleep start no earlier than that.
func TestAClockThatGoesBackMovesBookings(t *testing.T) {
	limits := []driver.Limit{{Units: 2, Window: 100}}
	log := &window.Log{Resolution: 1}
	out := make([]driver.Status, 1)
	log.Charge(start, 1, limits)
	log.Charge(start+10, 1, limits)
	for i, want := range []int64{start + 100, start + 110, start + 200} {
		if at, refusals := window.Book(log, start+20, 1000, 1, limits, out); at != want || refusals != 0 {
			t.Fatalf("booking %d is at %d, want %d", i, at-start, want-start)
		}
	}
	log.Look(start+5, 0, limits, out)
	want := []planned{{start, 1}, {start + 5, 1}, {start + 85, 1}, {start + 95, 1}, {start + 185, 1}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
	// Settlements of bookings that have moved take nothing from those that are there now.
	for _, at := range []int64{start + 85, start + 95, start + 100, start + 110, start + 200} {
		log.Settle(start+6, at, -1, limits)
	}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("after the settlements the entries are %v, want %v", got, want)
	}
	log.Settle(start+6, start, -1, limits) // this one was not moved
	if got := entries(log); got[0].units != 0 {
		t.Errorf("the entries are %v, and the first was given back", got)
	}
}

func entries(l *window.Log) (all []planned) {
	for at, units := range l.Entries() {
		all = append(all, planned{at, units})
	}
	return all
}

// The next booking fills the gap that one leaves which is given back, and the end of the queue moves up with the last one.
func TestABookingIsGivenBack(t *testing.T) {
	limits := []driver.Limit{{Units: 1, Window: 100}}
	log := &window.Log{Resolution: 50}
	out := make([]driver.Status, 1)
	book := func(want int64) {
		t.Helper()
		if at, refusals := window.Book(log, start, 1000, 1, limits, out); at != start+want || refusals != 0 {
			t.Fatalf("booked at %d, want %d", at-start, want)
		}
	}
	for i := range int64(4) {
		book(100 * i)
	}
	log.Settle(start+1, start+200, -1, limits)
	book(200)
	log.Settle(start+1, start+200, -1, limits)
	log.Settle(start+1, start+300, -1, limits)
	book(200)
	want := []planned{{start, 1}, {start + 100, 1}, {start + 200, 1}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
}

// Charges of one step share an entry, but none starts earlier for it, and no window ahead loses any.
func TestBookingsDoNotShareEntries(t *testing.T) {
	limits := []driver.Limit{{Units: 10, Window: 10_000}, {Units: 6, Window: 9_500}}
	log := &window.Log{Resolution: 4000}
	out := make([]driver.Status, 2)
	const step = start / 4000 * 4000
	log.Charge(step, 6, limits)
	if at, _ := window.Book(log, step+1, 1e6, 4, limits, out); at != step+9_500 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if at, _ := window.Book(log, step+1, 1e6, 1, limits, out); at != step+10_000 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if at, _ := window.Book(log, step+1, 1e6, 2, limits, out); at != step+19_000 {
		t.Fatalf("booked %d ahead", at-step)
	}
	if refusals := window.Decide(log, step+9_000, 1, limits[:1], false, out); refusals == 0 {
		t.Errorf("11 units of 10 are in the window that ends at %d", 9_500)
	}
	want := []planned{{step, 6}, {step + 9_500, 4}, {step + 10_000, 1}, {step + 19_000, 2}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
}

// At most so many entries lie ahead, and a call that is not booked looks at so many of them.
func TestBookingsAreBounded(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Ahead, threshold.Log.Walk = 5, 3
	limits := []driver.Limit{{Units: 2, Window: 100}}
	log := &window.Log{Resolution: 1}
	out := make([]driver.Status, 1)
	window.Book(log, start, 0, 2, limits, out)
	for i := range 5 {
		window.Book(log, start, 10_000, 2, limits, out)
		if at := start + 100*int64(i+1); log.Until(start) != at {
			t.Fatalf("booking %d: the last starts at %d, want %d", i, log.Until(start), at)
		}
	}
	if _, refusals := window.Book(log, start, 10_000, 2, limits, out); refusals != 1 || out[0].Retry != 600 {
		t.Errorf("the sixth: refusals %b, retry %d", refusals, out[0].Retry)
	}
	if _, refusals := window.Book(log, start+100, 10_000, 2, limits, out); refusals != 0 {
		t.Errorf("once the first has started: refusals %b", refusals)
	}
	many := []driver.Limit{{Units: 1000, Window: 301}}
	if refusals := window.Decide(log, start+100, 1, many, false, out); refusals != 0 || out[0].Remaining == 0 {
		t.Errorf("with three bookings in the window: refusals %b, %+v", refusals, out[0])
	}
	many[0].Window = 401
	if refusals := window.Decide(log, start+100, 1, many, false, out); refusals != 1 || out[0].Remaining != 0 {
		t.Errorf("with four bookings in the window: refusals %b, %+v", refusals, out[0])
	}
}

// Bookings keep their units when full entries before them are merged.
func TestAClockThatGoesBackFillsAnEntryBeforeBookings(t *testing.T) {
	before := threshold.Log
	defer func() { threshold.Log = before }()
	threshold.Log.Units = 10
	limits := []driver.Limit{{Units: 9, Window: 100}}
	log := &window.Log{Resolution: 1}
	log.Charge(start, 8, limits)
	log.Charge(start+1, 8, limits)
	window.Book(log, start+1, 1000, 3, limits, make([]driver.Status, 1))
	log.Look(start, 0, limits, make([]driver.Status, 1))
	want := []planned{{start, 10}, {start + 100, 3}}
	if got := entries(log); !slices.Equal(got, want) {
		t.Errorf("the entries are %v, want %v", got, want)
	}
}
