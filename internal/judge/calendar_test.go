package judge

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones, also where the system has none

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

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
				policy, err := sash.NewPolicy(nil, limit)
				if err != nil {
					t.Fatal(err)
				}
				for at := c.day.Add(-36 * time.Hour); at.Before(c.day.Add(60 * time.Hour)); at = at.Add(13*time.Minute + time.Microsecond) {
					clock := NewClock(at)
					store := memstore.New(&memstore.Options{Now: clock.Now})
					res, err := store.Decide(t.Context(), driver.Request{Key: "k", Cost: 1, Policy: policy})
					if err != nil {
						t.Fatal(err)
					}
					_, end := Bounds(limit, clock.Now().UnixMicro())
					if want := end - clock.Now().UnixMicro(); res.Statuses()[0].Reset != want {
						t.Fatalf("at %v: Reset is %d, want %d", at.In(zone), res.Statuses()[0].Reset, want)
					}
				}
			})
		}
	}
}
