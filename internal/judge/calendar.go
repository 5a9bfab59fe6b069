package judge

import (
	"cmp"
	"sync"
	"time"

	"example.com/sash"
)

// bounds returns the calendar period around an instant, start <= now < end, in microseconds: by stepping
// through time a minute at a time and reading the local clock.
func bounds(l sash.Limit, now int64) (start, end int64) {
	zone := cmp.Or(l.Zone, time.UTC)
	t := time.UnixMicro(now)
	switch l.Period {
	case sash.CalendarHour:
		return hourAround(t, zone)
	case sash.CalendarDay:
		return datesAround(t, zone, 1, func(d date, n int) date { return d.add(0, n) })
	default:
		return datesAround(t, zone, 31, func(d date, n int) date { return date{d.year, d.month, 1}.add(n, 0) })
	}
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

type date struct {
	year  int
	month time.Month
	day   int
}

func (d date) add(months, days int) date {
	y, m, day := time.Date(d.year, d.month+time.Month(months), d.day+days, 0, 0, 0, 0, time.UTC).Date()
	return date{y, m, day}
}

func (d date) before(e date) bool {
	if d.year != e.year {
		return d.year < e.year
	}
	if d.month != e.month {
		return d.month < e.month
	}
	return d.day < e.day
}

// datesAround finds the period around t, whose boundaries are the first instants of dates. The nth period
// after that of a date begins on step(date, n).
func datesAround(t time.Time, zone *time.Location, reach int, step func(d date, n int) date) (start, end int64) {
	y, m, d := t.In(zone).Date()
	begin := step(date{y, m, d}.add(0, -reach), 0)
	now := t.UnixMicro()
	for n := 1; ; n++ {
		next := firstInstant(step(begin, n), zone)
		if next > now {
			from := step(begin, n-1)
			// A date that the zone skipped begins together with the one after it.
			return firstInstant(from, zone), next
		}
	}
}

var firstInstants sync.Map // of firstKey, to int64: the search is slow

type firstKey struct {
	date date
	zone string
}

// firstInstant returns the first instant whose local date is d or later.
func firstInstant(d date, zone *time.Location) int64 {
	key := firstKey{d, zone.String()}
	if t, ok := firstInstants.Load(key); ok {
		return t.(int64)
	}
	t := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Add(-40 * time.Hour)
	for {
		y, m, day := t.In(zone).Date()
		if !(date{y, m, day}).before(d) {
			break
		}
		t = t.Add(time.Minute)
	}
	firstInstants.Store(key, t.UnixMicro())
	return t.UnixMicro()
}

// longest returns the most microseconds for which a limit may need a charge.
func longest(l sash.Limit) int64 {
	switch l.Period {
	case sash.CalendarHour:
		return 2 * time.Hour.Microseconds()
	case sash.CalendarDay:
		return 25 * time.Hour.Microseconds()
	case sash.CalendarMonth:
		return (31*24 + 1) * time.Hour.Microseconds()
	}
	return l.Window.Microseconds()
}

// settleable returns the microseconds for which a charge under limits can be settled: until no charge under them
// counts, whatever the clocks show, even if another policy on the same key counts it for longer.
func settleable(limits []sash.Limit) (longest int64) {
	for _, l := range limits {
		switch l.Period {
		case sash.CalendarHour:
			longest = max(longest, 2*time.Hour.Microseconds())
		case sash.CalendarDay:
			longest = max(longest, 48*time.Hour.Microseconds())
		case sash.CalendarMonth:
			longest = max(longest, 33*24*time.Hour.Microseconds())
		default:
			longest = max(longest, l.Window.Microseconds())
		}
	}
	return longest
}

// span returns a name for the time over which a limit counts.
func span(l sash.Limit) string {
	l.Units, l.Name = 0, ""
	return l.String()
}
