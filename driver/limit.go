package driver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Period is a stretch of the calendar. The zero Period is none: the window slides.
type Period uint8

// The calendar's periods.
const (
	Hour Period = iota + 1
	Day
	Month
)

var periodNames = [...]string{Hour: "hour", Day: "day", Month: "month"}

// String returns "hour", "day" or "month".
func (p Period) String() string {
	if p == 0 || int(p) >= len(periodNames) {
		return fmt.Sprintf("Period(%d)", uint8(p))
	}
	return periodNames[p]
}

// A Limit is a number of units in the last Window microseconds, or with a Period since the last boundary of the calendar in Zone.
type Limit struct {
	Units  int64
	Window int64
	Period Period
	Zone   *time.Location
}

// String returns the limit as sash.ParseLimit reads it, such as "300/5m" or "10000/day@America/Los_Angeles".
func (l *Limit) String() string {
	units := strconv.FormatInt(l.Units, 10)
	if l.Period != 0 {
		return units + "/" + l.Period.String() + "@" + l.Zone.String()
	}
	return units + "/" + FormatWindow(time.Duration(l.Window)*time.Microsecond)
}

var short = strings.NewReplacer("h0m0s", "h", "m0s", "m")

// FormatWindow returns a window's length as limits are written: "5m", "1h30m", "7d".
func FormatWindow(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return short.Replace(d.String())
}

// SameWindow reports whether two limits count over the same time.
func (l *Limit) SameWindow(o *Limit) bool {
	return l.Window == o.Window && l.Period == o.Period && (l.Period == 0 || l.Zone.String() == o.Zone.String())
}

// Cut returns the last instant that no longer counts at now. For a calendar limit, stop is the instant at
// which all charges leave at once. For a sliding limit, stop is 0, and each charge leaves a Window after it
// was made.
func (l *Limit) Cut(now int64) (cut, stop int64) {
	if l.Period == 0 {
		return now - l.Window, 0
	}
	start, end := l.Bounds(now)
	return start - 1, end
}

// Length returns the longest time that a charge can count, however clocks change: Antarctica/Troll has days of 26 hours.
func (l *Limit) Length() int64 {
	switch l.Period {
	case Hour:
		return 2 * time.Hour.Microseconds()
	case Day:
		return 48 * time.Hour.Microseconds()
	case Month:
		return 33 * 24 * time.Hour.Microseconds()
	}
	return l.Window
}

// Bounds returns the calendar period around now: start <= now < end.
func (l *Limit) Bounds(now int64) (start, end int64) {
	t := time.UnixMicro(now).In(l.Zone)
	if l.Period == Hour {
		return hour(t)
	}
	year, month, day := t.Date()
	next := func(n int) int64 { return midnight(year, month, day+n, l.Zone) }
	if l.Period == Month {
		next = func(n int) int64 { return midnight(year, month+time.Month(n), 1, l.Zone) }
	}
	if now >= next(1) { // clocks went back over midnight: the next date has begun already
		return next(1), next(2)
	}
	return next(0), next(1)
}

// hour returns the clock hour around t. Where the clocks change inside an hour, the change is a boundary.
func hour(t time.Time) (start, end int64) {
	_, offset := t.Zone()
	local := t.Unix() + int64(offset)
	first := local - (local%3600+3600)%3600 - int64(offset) // also before 1970
	last := first + 3600
	from, to := t.ZoneBounds()
	if !from.IsZero() && changes(from) {
		first = max(first, from.Unix())
	}
	if !to.IsZero() && changes(to) {
		last = min(last, to.Unix())
	}
	return first * 1e6, last * 1e6
}

// changes reports whether the clocks change at a bound of a zone. At some bounds only the zone's table ends, in 2038, or a year begins.
func changes(bound time.Time) bool {
	_, before := bound.Add(-time.Nanosecond).Zone()
	_, offset := bound.Zone()
	return before != offset
}

// midnight returns the first instant of a date in a zone. If clocks go forward over midnight, that is the
// instant of the change; if they go back over it, the first of the two midnights. The day may be out of the
// month's range, as for time.Date.
func midnight(year int, month time.Month, day int, zone *time.Location) int64 {
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC) // the date's number, whatever the zone
	is := func(t time.Time) bool {
		y, m, d := t.Date()
		return y == date.Year() && m == date.Month() && d == date.Day()
	}
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if !is(t) { // midnight was skipped and t is before the change
		_, t = t.ZoneBounds()
		return t.UnixMicro()
	}
	from, _ := t.ZoneBounds()
	if !from.IsZero() && is(from.Add(-time.Nanosecond)) {
		// The clocks changed earlier the same day: count from the midnight before that.
		_, offset := from.Add(-time.Nanosecond).Zone()
		return (date.Unix() - int64(offset)) * 1e6
	}
	if !from.IsZero() && t.Sub(from) < 24*time.Hour && is(from) {
		return from.UnixMicro() // midnight was skipped and t is after the change
	}
	return t.UnixMicro()
}
