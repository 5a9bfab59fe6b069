package replay

import (
	"cmp"
	"slices"
	"time"
)

// A Day is what a candidate did to the requests of one class on one calendar day. For retried requests the first attempt
// counts.
type Day struct {
	// Day is a date, such as 2015-05-17.
	Day string `json:"day"`
	// Class is the number of the class, or 0 for requests without a class.
	Class uint8 `json:"class"`
	// Requests and Units are the totals, including refused ones. FirstRefused is when the quota ran out for this class,
	// RFC 3339 in the zone of the days. It is empty if nothing was refused.
	Requests     int64  `json:"requests"`
	Units        int64  `json:"units"`
	Refused      int64  `json:"refused"`
	RefusedUnits int64  `json:"refused_units"`
	FirstRefused string `json:"first_refused,omitempty"`
}

// days counts by day, in the zone of the first calendar limit, or in UTC. A nil days counts nothing.
type days struct {
	zone *time.Location
	rows map[dayClass]*Day

	quarter int64 // of the last request, in quarter hours since the epoch
	day     string
}

type dayClass struct {
	day   string
	class uint8
}

func newDays(c *Candidate) *days {
	d := &days{zone: time.UTC, rows: make(map[dayClass]*Day), quarter: -1}
	for _, rule := range c.rules() {
		for _, l := range rule.Limits {
			if l.Period != 0 && l.Zone != nil {
				d.zone = l.Zone
				return d
			}
		}
	}
	return d
}

func (d *days) row(e *event) *Day {
	// Since 1972 days have begun at full quarter hours, so the day does not change within one.
	if quarter := e.at / (15 * time.Minute).Microseconds(); quarter != d.quarter || d.day == "" {
		d.quarter, d.day = quarter, time.UnixMicro(e.at).In(d.zone).Format(time.DateOnly)
	}
	row := d.rows[dayClass{d.day, e.class}]
	if row == nil {
		row = &Day{Day: d.day, Class: e.class}
		d.rows[dayClass{d.day, e.class}] = row
	}
	return row
}

func (d *days) asked(e *event) {
	if d == nil {
		return
	}
	row := d.row(e)
	row.Requests++
	row.Units += e.cost
}

func (d *days) refused(e *event) {
	if d == nil {
		return
	}
	row := d.row(e)
	if row.Refused++; row.Refused == 1 {
		row.FirstRefused = time.UnixMicro(e.at).In(d.zone).Format(time.RFC3339Nano)
	}
	row.RefusedUnits += e.cost
}

func (d *days) finish(o *Outcome) {
	if d == nil {
		return
	}
	o.Zone = d.zone.String()
	for _, row := range d.rows {
		o.Days = append(o.Days, *row)
	}
	slices.SortFunc(o.Days, func(a, b Day) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Class, b.Class))
	})
}
