package modeltest

import (
	"cmp"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

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
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		for p := sash.CalendarHour; p <= sash.CalendarMonth; p++ {
			t.Run(c.name+"/"+p.String(), func(t *testing.T) {
				limit := sash.PerCalendar(5, p, zone)
				policy := newPolicy(t, nil, limit)
				for at := c.day.Add(-36 * time.Hour); at.Before(c.day.Add(60 * time.Hour)); at = at.Add(13*time.Minute + time.Microsecond) {
					clock := judge.NewClock(at)
					store := memstore.New(&memstore.Options{Now: clock.Now})
					res, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: policy})
					if err != nil {
						t.Fatal(err)
					}
					_, end := bounds(limit, clock.Now().UnixMicro())
					if want := end - clock.Now().UnixMicro(); res.Statuses()[0].Reset != want {
						t.Fatalf("at %v: Reset is %d, want %d", at.In(zone), res.Statuses()[0].Reset, want)
					}
				}
			})
		}
	}
}
