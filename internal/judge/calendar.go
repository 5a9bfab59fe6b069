package judge

import (
	"cmp"
	"sync"
	"time"

	"example.com/sash"
)

// Bounds returns the calendar period around an instant, start <= now < end, in microseconds: by stepping
// through time a minute at a time and reading the local clock.
func Bounds(l sash.Limit, now int64) (start, end int64) {
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
