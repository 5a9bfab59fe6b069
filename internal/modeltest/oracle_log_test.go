package modeltest

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

// A unit is the charge of one call.
type unit struct {
	made  int64 // the instant at which it was made, on the store's clock
	at    int64 // the instant at which it counts as made
	late  int64 // the latest at which it may: see log.slid
	units int64
	// loose is true if a store may have forgotten the charge; moved is true if the clock went back behind it and
	// the charge got a new date.
	loose, moved bool
	settled      bool // its units are no longer the call's cost
}

// A log is the exact sliding window or, with a resolution, the one whose calls share entries: the charges of an
// entry have the same time. The charges are in the order of their times; those later than now are bookings.
type log struct {
	resolution int64
	charges    []unit
	keep       int64 // the longest window that the key was charged under
	most       int64 // the most units that it was charged under
	written    int64 // when a charge was made last: a later one is a booking
	gaps       int   // bookings that were given back, which a store may still look at
	slid       bool  // a limit was not of the calendar; until then a store may count the charges of a period as made at the latest of them
	open       bool  // units came back while bookings lay ahead, and some do: a booking may fill a gap
}

func (l *log) see(now int64) {
	gone := true
	for i := range l.charges {
		if l.charges[i].at <= now-l.keep {
			l.charges[i].loose = true
		}
		gone = gone && l.charges[i].loose
	}
	if gone { // the store may have dropped the key with all it held
		l.keep, l.most, l.slid = 0, 0, false
	}
}

// stepBack is by how many microseconds a clock trembles.
const stepBack = 1000

// stands reports whether a clock that shows now stands at a later charge, of those after an instant.
func (l *log) stands(now, after int64) bool {
	return slices.ContainsFunc(l.charges, func(c unit) bool { return max(now, after) < c.at && c.at <= min(l.written, now+stepBack) })
}

func (l *log) touch(now int64, _ []sash.Limit) {
	if l.latest() <= now || now >= l.written {
		return
	}
	for i := range l.charges {
		switch c := &l.charges[i]; {
		case c.at > l.written: // a booking: whoever waits for it counts real time
			c.at, c.moved = c.at-(l.written-now), true
		case c.at > now:
			c.at, c.moved = now, true
		}
		l.charges[i].late = min(l.charges[i].late, now)
	}
	l.written = now
}

func (l *log) look(now, cost int64, limit sash.Limit, loose bool) status {
	if l.latest() > now {
		return l.lookAhead(now, cost, limit, loose)
	}
	window := limit.Window.Microseconds()
	cut := since(limit, now) - 1 // the last instant that no longer counts
	var times, sums []int64      // of the charges that count now, and of all up to each
	var total int64
	for _, c := range l.seen(loose) {
		if c.at > cut {
			total += c.units
			times, sums = append(times, c.at), append(sums, total)
		}
	}
	used := func(d int64) int64 {
		if gone, _ := slices.BinarySearch(times, since(limit, now+d)); gone > 0 {
			return total - sums[gone-1]
		}
		return total
	}
	// The units in use can only change when a charge leaves or a period ends.
	instants := []int64{0}
	if limit.Period != 0 {
		_, end := bounds(limit, now)
		instants = append(instants, end-now)
	} else {
		for _, at := range times {
			if d := at + window - now; d > 0 {
				instants = append(instants, d)
			}
		}
	}
	return describe(used, instants, cost, limit.Units)
}

// seen returns the charges with those that a store may have forgotten, each at the latest instant at which it may count, or without.
func (l *log) seen(loose bool) (charges []unit) {
	for _, c := range l.charges {
		if loose {
			c.at = max(c.at, c.late)
		}
		if loose || !c.loose {
			charges = append(charges, c)
		}
	}
	slices.SortStableFunc(charges, func(a, b unit) int { return cmp.Compare(a.at, b.at) })
	return charges
}

func (l *log) charge(now, cost int64, limits []sash.Limit) {
	n := l.started(now)
	if !l.slid && !slides(limits) {
		for i := range n {
			if c := &l.charges[i]; l.together(max(c.at, c.late), now, limits) {
				c.late = now
			}
		}
	}
	if n > 0 && l.joins(l.charges[n-1].at, now, limits) {
		for i, last := n-1, l.charges[n-1].at; i >= 0 && l.charges[i].at == last; i-- {
			l.charges[i].at = now
		}
	}
	l.book(now, now, cost, limits)
}

// book charges at an instant, which is now or ahead.
func (l *log) book(now, at, cost int64, limits []sash.Limit) {
	l.slid = l.slid || slides(limits)
	for _, limit := range limits {
		l.keep = max(l.keep, longest(limit))
		l.most = max(l.most, limit.Units)
	}
	if l.latest() <= now {
		l.written, l.open = now, false
	}
	l.written = max(l.written, now)
	l.charges = slices.Insert(l.charges, l.started(at), unit{made: at, at: at, units: cost})
	var after int64
	for i := l.started(now) - 1; i >= 0; i-- {
		c := &l.charges[i]
		c.loose = c.loose || after >= l.most || c.at <= now-l.keep
		after += c.units
	}
}

// started returns how many charges are not later than an instant.
func (l *log) started(at int64) int {
	n := 0
	for n < len(l.charges) && l.charges[n].at <= at {
		n++
	}
	return n
}

// slides reports whether a limit is not of the calendar.
func slides(limits []sash.Limit) bool {
	return slices.ContainsFunc(limits, func(l sash.Limit) bool { return l.Period == 0 })
}

func (l *log) joins(last, now int64, limits []sash.Limit) bool {
	return last/l.resolution == now/l.resolution && l.together(last, now, limits)
}

// together reports whether no period has begun since an instant.
func (l *log) together(last, now int64, limits []sash.Limit) bool {
	for _, limit := range limits {
		if limit.Period != 0 && last < since(limit, now) {
			return false
		}
	}
	return true
}

func (l *log) settle(now, made, cost, units int64, limits []sash.Limit) {
	if now-made < settleable(limits) { // even if later calls have joined it
		l.open = l.open || units < cost && l.latest() > min(now, l.written) // a booking that has started may lie ahead again
		l.charges = settled(l.charges, made, cost, units)
		if units == 0 {
			l.gaps++
		}
	}
}

// settled corrects the latest charge of that instant that is not settled yet.
func settled(charges []unit, made, cost, units int64) []unit {
	for i := len(charges) - 1; i >= 0; i-- {
		if c := &charges[i]; c.made == made && c.units == cost && !c.settled {
			c.units, c.settled = units, true
			if units == 0 {
				return slices.Delete(charges, i, i+1)
			}
			break
		}
	}
	return charges
}

// describe computes a limit's status from the units in use at each instant at which they may change.
func describe(used func(d int64) int64, instants []int64, cost, units int64) status {
	first := func(ok func(d int64) bool) int64 {
		return instants[sort.Search(len(instants), func(i int) bool { return ok(instants[i]) })]
	}
	now := used(0)
	s := status{remaining: max(0, units-now), refused: now+cost > units}
	if now > 0 {
		s.release = first(func(d int64) bool { return used(d) < min(now, units) })
		s.reset = first(func(d int64) bool { return used(d) == 0 })
	}
	if s.refused {
		s.retry = first(func(d int64) bool { return used(d)+cost <= units })
	}
	return s
}

// bounds returns the calendar period around an instant, start <= now < end, in microseconds: by stepping
// through time a minute at a time and reading the local clock.
func bounds(l sash.Limit, now int64) (start, end int64) {
	zone := cmp.Or(l.Zone, time.UTC)
	t := time.UnixMicro(now)
	if l.Period == sash.CalendarHour {
		return hourAround(t, zone)
	}
	d, months, days := dateOf(t, zone).AddDate(0, 0, -1), 0, 1
	if l.Period == sash.CalendarMonth {
		d, months, days = d.AddDate(0, -1, 1-d.Day()), 1, 0
	}
	next := d.AddDate(0, months, days)
	for firstInstant(next, zone) <= now {
		d, next = next, next.AddDate(0, months, days)
	}
	// A date that the zone skipped begins together with the one after it.
	return firstInstant(d, zone), firstInstant(next, zone)
}

// dateOf returns the local date, as midnight in UTC.
func dateOf(t time.Time, zone *time.Location) time.Time {
	y, m, d := t.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// hourAround extends a minute while the local hour and the offset from UTC stay the same.
func hourAround(t time.Time, zone *time.Location) (start, end int64) {
	type label struct{ year, yearDay, hour, offset int }
	at := func(t time.Time) label {
		local := t.In(zone)
		_, offset := local.Zone()
		return label{local.Year(), local.YearDay(), local.Hour(), offset}
	}
	first := t.Truncate(time.Minute)
	last := first.Add(time.Minute)
	for here := at(t); at(first.Add(-time.Minute)) == here; {
		first = first.Add(-time.Minute)
	}
	for here := at(t); at(last) == here; {
		last = last.Add(time.Minute)
	}
	return first.UnixMicro(), last.UnixMicro()
}

var firstInstants sync.Map // of firstKey, to int64: the search is slow

type firstKey struct {
	date int64
	zone string
}

// firstInstant returns the first instant whose local date is d or later.
func firstInstant(d time.Time, zone *time.Location) int64 {
	key := firstKey{d.Unix(), zone.String()}
	if t, ok := firstInstants.Load(key); ok {
		return t.(int64)
	}
	t := d.Add(-40 * time.Hour)
	for dateOf(t, zone).Before(d) {
		t = t.Add(time.Minute)
	}
	firstInstants.Store(key, t.UnixMicro())
	return t.UnixMicro()
}

// Days whose clocks change in ways that calendar code gets wrong.
var changes = []struct {
	name, zone string
	day        time.Time
}{
	{"a day of 23 hours", "America/Los_Angeles", time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)},
	{"a day of 25 hours", "America/Los_Angeles", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
	{"a change of half an hour", "Australia/Lord_Howe", time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC)},
	{"a midnight that is skipped", "America/Sao_Paulo", time.Date(2018, 11, 4, 0, 0, 0, 0, time.UTC)},
	{"a midnight that comes twice in a day", "America/Havana", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
	{"clocks that go back from midnight", "America/Asuncion", time.Date(2023, 3, 26, 0, 0, 0, 0, time.UTC)},
	{"clocks that go back from a minute past midnight", "America/St_Johns", time.Date(2009, 11, 1, 0, 0, 0, 0, time.UTC)},
	{"a date that is skipped", "Pacific/Apia", time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC)},
	{"an offset of three quarters of an hour", "Asia/Kathmandu", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	{"the end of the table of a zone", "Pacific/Kwajalein", time.Date(2038, 1, 19, 0, 0, 0, 0, time.UTC)},
	{"the end of the table, with changes after it", "America/Los_Angeles", time.Date(2037, 12, 31, 0, 0, 0, 0, time.UTC)},
	{"the first of a month that is skipped", "Africa/Cairo", time.Date(2014, 8, 1, 0, 0, 0, 0, time.UTC)},
}

func TestCalendarPeriodsEndWhenTheLocalDateDoes(t *testing.T) {
	for _, c := range changes {
		zone := must(time.LoadLocation(c.zone))
		for p := sash.CalendarHour; p <= sash.CalendarMonth; p++ {
			t.Run(c.name+"/"+p.String(), func(t *testing.T) {
				limit := sash.PerCalendar(5, p, zone)
				policy := newPolicy(t, nil, limit)
				for at := c.day.Add(-36 * time.Hour); at.Before(c.day.Add(60 * time.Hour)); at = at.Add(13*time.Minute + time.Microsecond) {
					clock := judge.NewClock(at)
					store := memstore.New(&memstore.Options{Now: clock.Now})
					res := must(drivertest.Of(store).Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: policy}))
					_, end := bounds(limit, clock.Now().UnixMicro())
					if want := end - clock.Now().UnixMicro(); res.Statuses()[0].Reset != want {
						t.Fatalf("at %v: Reset is %d, want %d", at.In(zone), res.Statuses()[0].Reset, want)
					}
				}
			})
		}
	}
}
