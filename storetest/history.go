package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/sash"
)

// An Admission is a call that a store decided, and the time of its decision on the store's clock: [sash.Result.At].
type Admission struct {
	At   time.Time
	Cost int64
}

// CheckHistory returns nil if the admissions keep every limit, and otherwise an error that names the first window
// with more than the limit's units. A sliding limit is checked in every trailing
// window; those that end at an admission are enough, for between admissions use only falls. A calendar limit is
// checked in every period. The admissions may be in any order, and must be all charges of the subject.
func CheckHistory(limits []sash.Limit, admissions []Admission) error {
	byTime := sorted(admissions)
	for _, l := range limits {
		first, used := 0, int64(0)
		for _, a := range byTime {
			used += a.Cost
			for gone(l, byTime[first].At, a.At) {
				used -= byTime[first].Cost
				first++
			}
			if used > l.Units {
				return fmt.Errorf("%s: %d units were admitted in the window that ends at %s",
					l, used, a.At.Format(time.RFC3339Nano))
			}
		}
	}
	return nil
}

// CheckRefusals returns nil if every refusal was right: some limit had no room for it. Admissions at the instant
// of a refusal count as made before it, for the store may have decided them in that order. Both lists are of one
// subject and complete.
func CheckRefusals(limits []sash.Limit, admissions, refusals []Admission) error {
	byTime := sorted(admissions)
	type cursor struct {
		first, last int
		used        int64
	}
	cursors := make([]cursor, len(limits))
	for _, r := range sorted(refusals) {
		full := false
		for i, l := range limits {
			c := &cursors[i]
			for c.last < len(byTime) && !byTime[c.last].At.After(r.At) {
				c.used += byTime[c.last].Cost
				c.last++
			}
			for c.first < c.last && gone(l, byTime[c.first].At, r.At) {
				c.used -= byTime[c.first].Cost
				c.first++
			}
			full = full || c.used+r.Cost > l.Units
		}
		if !full {
			return fmt.Errorf("a call of %d units was refused at %s, but every limit had room: %d of %s were in use",
				r.Cost, r.At.Format(time.RFC3339Nano), cursors[0].used, limits[0])
		}
	}
	return nil
}

// gone reports whether a charge no longer counts at an instant. A charge made exactly a window ago does not.
func gone(l sash.Limit, charged, now time.Time) bool {
	if l.Period == 0 {
		return !charged.After(now.Add(-l.Window))
	}
	zone := cmp.Or(l.Zone, time.UTC)
	return label(l.Period, charged.In(zone)) != label(l.Period, now.In(zone))
}

// label names the calendar period around a local time.
func label(p sash.Period, local time.Time) string {
	switch p {
	case sash.CalendarHour:
		return local.Format("2006-01-02 15 -0700")
	case sash.CalendarDay:
		return local.Format("2006-01-02")
	default:
		return local.Format("2006-01")
	}
}

func sorted(history []Admission) []Admission {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b Admission) int { return a.At.Compare(b.At) })
	return history
}
