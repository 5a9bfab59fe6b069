package storetest_test

import (
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/storetest"
)

func at(d time.Duration, cost int64) storetest.Admission {
	return storetest.Admission{At: time.Unix(1000, 0).Add(d), Cost: cost}
}

func TestCheckHistory(t *testing.T) {
	limit := sash.Every(3, 10*time.Second)
	for _, c := range []struct {
		name       string
		admissions []storetest.Admission
		wrong      bool
	}{
		{"nothing", nil, false},
		{"as many as there are units", []storetest.Admission{at(0, 1), at(0, 2)}, false},
		{"one more", []storetest.Admission{at(0, 1), at(0, 2), at(0, 1)}, true},
		{"exactly a window later", []storetest.Admission{at(0, 3), at(10*time.Second, 3)}, false},
		{"a microsecond less than a window later", []storetest.Admission{at(0, 3), at(10*time.Second-time.Microsecond, 1)}, true},
		{"in any order", []storetest.Admission{at(10*time.Second, 3), at(0, 3)}, false},
		{"a window across two bursts", []storetest.Admission{at(0, 1), at(6*time.Second, 1), at(9*time.Second, 1), at(11*time.Second, 2)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := storetest.CheckHistory([]sash.Limit{sash.Every(100, time.Second), limit}, c.admissions)
			if (err != nil) != c.wrong {
				t.Errorf("error %v", err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), limit.String()) {
				t.Errorf("the error does not name the limit: %v", err)
			}
		})
	}
}

func TestCheckHistoryOfCalendarLimits(t *testing.T) {
	zone := time.FixedZone("east", 2*3600)
	limit := sash.PerCalendar(1, sash.CalendarDay, zone)
	midnight := time.Date(2026, 5, 2, 0, 0, 0, 0, zone)
	around := []storetest.Admission{{At: midnight.Add(-time.Microsecond), Cost: 1}, {At: midnight, Cost: 1}}
	if err := storetest.CheckHistory([]sash.Limit{limit}, around); err != nil {
		t.Error(err)
	}
	around = append(around, storetest.Admission{At: midnight.Add(23 * time.Hour), Cost: 1})
	if storetest.CheckHistory([]sash.Limit{limit}, around) == nil {
		t.Error("two units in one day were not reported")
	}
}

func TestCheckRefusals(t *testing.T) {
	limits := []sash.Limit{sash.Every(3, 10*time.Second)}
	for _, c := range []struct {
		name                 string
		admissions, refusals []storetest.Admission
		wrong                bool
	}{
		{"no room", []storetest.Admission{at(0, 3)}, []storetest.Admission{at(5*time.Second, 1)}, false},
		{"room", []storetest.Admission{at(0, 2)}, []storetest.Admission{at(5*time.Second, 1)}, true},
		{"room for less", []storetest.Admission{at(0, 2)}, []storetest.Admission{at(5*time.Second, 2)}, false},
		{"refused although the units have left", []storetest.Admission{at(0, 3)}, []storetest.Admission{at(10*time.Second, 1)}, true},
		{"admitted in the same microsecond", []storetest.Admission{at(0, 3)}, []storetest.Admission{at(0, 1)}, false},
		{"admitted only afterwards", []storetest.Admission{at(1, 3)}, []storetest.Admission{at(0, 1)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := storetest.CheckRefusals(limits, c.admissions, c.refusals); (err != nil) != c.wrong {
				t.Errorf("error %v", err)
			}
		})
	}
}
