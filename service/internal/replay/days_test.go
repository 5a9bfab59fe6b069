package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/sash"
)

// With a reserve a class of calls stops when its share of the quota is used, its own cost included, while all are
// charged alike: counted by the definition, over the days of the calendar, on the real log as if it were one job's.
func TestAReserveIsByTheDefinition(t *testing.T) {
	text := realLog(t)
	lines := calls(t, text)
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	classes := []string{"bytes > 50000", "bytes > 10000"} // the first that holds counts
	classOf := func(c call) uint8 {
		switch {
		case c.bytes > 50000:
			return 1
		case c.bytes > 10000:
			return 2
		}
		return 0
	}
	cost := func(c call) int64 { return (c.bytes+99999)/100000 + 1 }
	type charge struct {
		at   time.Time
		day  string
		cost int64
	}
	for _, tt := range []struct {
		limits string
		units  []int64 // and what each class may find used
		shares []int
	}{
		{"80/day@America/Los_Angeles", []int64{80, 80, 80}, nil},
		{"80/day@America/Los_Angeles", []int64{80, 48, 76}, []int{60, 95}},
		{"33/day@America/Los_Angeles", []int64{33, 16, 33}, []int{50}},
		{"80/24h", []int64{80, 48, 76}, []int{60, 95}},
		{"280/day@America/Los_Angeles", []int64{280, 168, 266}, []int{60, 95}},
	} {
		limits, err := ParseLimits(tt.limits)
		if err != nil {
			t.Fatal(err)
		}
		sliding := limits[0].Period == 0
		rows := make(map[string]*Day)
		var past []charge
		var refused int64
		for _, c := range lines {
			used, day := cost(c), c.at.In(zone).Format("2006-01-02")
			for _, p := range past {
				if sliding && p.at.After(c.at.Add(-24*time.Hour)) || !sliding && p.day == day {
					used += p.cost
				}
			}
			where := c.at.In(time.UTC)
			if !sliding {
				where = c.at.In(zone)
			}
			name := fmt.Sprint(where.Format("2006-01-02"), classOf(c))
			if rows[name] == nil {
				rows[name] = &Day{Day: where.Format("2006-01-02"), Class: classOf(c)}
			}
			row := rows[name]
			row.Requests++
			row.Units += cost(c)
			if used <= tt.units[classOf(c)] {
				past = append(past, charge{c.at, day, cost(c)})
				continue
			}
			if row.Refused == 0 {
				row.FirstRefused = where.Format("2006-01-02T15:04:05Z07:00")
			}
			row.Refused++
			row.RefusedUnits += cost(c)
			refused++
		}
		var want []Day
		for _, row := range rows {
			want = append(want, *row)
		}
		slices.SortFunc(want, func(a, b Day) int {
			if a.Day != b.Day {
				return map[bool]int{true: -1, false: 1}[a.Day < b.Day]
			}
			return int(a.Class) - int(b.Class)
		})
		trace := trace(t, text, Expressions{Key: `"upstream"`, Cost: "bytes / 100000 + 1", Classes: classes})
		got := outcomesOf(t, trace, []Candidate{{Limits: limits, Shares: tt.shares}}, &RunOptions{Days: true})
		if got[0].Refused != refused || refused == 0 || !slices.Equal(got[0].Days, want) {
			t.Errorf("%s with shares %v: %d refused, by day\n%+v\nwant %d and\n%+v", tt.limits, tt.shares, got[0].Refused, got[0].Days, refused, want)
		}
	}
}

// What clients ask for in the periods of a calendar, counted by the dates of its zone.
func TestDemandOfACalendar(t *testing.T) {
	text := realLog(t)
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	for form, l := range map[string]sash.Limit{
		"2006-01-02":    {Units: 1, Period: sash.CalendarDay, Zone: zone},
		"2006-01-02T15": {Units: 1, Period: sash.CalendarHour, Zone: zone},
		"2006-01":       {Units: 1, Period: sash.CalendarMonth, Zone: zone},
	} {
		asked, peaks := make(map[[2]string]int64), make(map[string]int64)
		for _, c := range calls(t, text) {
			period := [2]string{c.address, c.at.In(zone).Format(form)}
			asked[period]++
			peaks[c.address] = max(peaks[c.address], asked[period])
		}
		var want []int64
		for _, n := range peaks {
			want = append(want, n)
		}
		slices.Sort(want)
		got, err := trace(t, text, Expressions{}).Demands(t.Context(), []Candidate{{Limits: []sash.Limit{sash.PerMinute(3), l}}, {Limits: []sash.Limit{l}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || !slices.Equal(got[1].Peaks, want) {
			t.Errorf("%s: %d demands, %v", form, len(got), got[1].Peaks)
		}
	}
}

// A request at midnight is one of the new day.
func TestADayBeginsAtMidnight(t *testing.T) {
	midnight := time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC).UnixMicro()
	var b Builder
	for _, at := range []int64{midnight - 2, midnight - 1, midnight, midnight + 1, midnight + 2, midnight + 3} {
		b.Add(at, Selection{Key: "k", Cost: 1})
	}
	trace := b.Trace()
	d, err := trace.CalendarDemand(t.Context(), sash.Limit{Units: 9, Period: sash.CalendarDay, Zone: time.UTC})
	if err != nil || d.Period != "day@UTC" || !slices.Equal(d.Peaks, []int64{4}) {
		t.Errorf("%+v, %v", d, err)
	}
	outcomes := outcomesOf(t, trace, []Candidate{{Limits: []sash.Limit{sash.PerDay(5)}}}, &RunOptions{Days: true})
	want := []Day{
		{Day: "2026-03-07", Requests: 2, Units: 2},
		{Day: "2026-03-08", Requests: 4, Units: 4, Refused: 1, RefusedUnits: 1, FirstRefused: "2026-03-08T00:00:00.000003Z"},
	}
	if got := outcomes[0].Days; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestAShareThatIsNoUnit(t *testing.T) {
	c := Candidate{Limits: []sash.Limit{sash.PerMinute(3)}, Shares: []int{95, 20}}
	if err := c.Check(); err == nil || err.Error() != "sash: invalid limit: 20% of 3/1m is less than one unit" {
		t.Errorf("%v", err)
	}
}
