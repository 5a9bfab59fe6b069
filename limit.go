package sash

import (
	"fmt"
	"strconv"
	"time"

	"example.com/sash/driver"
)

// A Limit is a number of units in a window of time.
//
// With a Window, the window slides: at most Units are admitted in any trailing Window. With a Period,
// units are counted since the last boundary of the calendar in Zone, as upstream quotas that reset at
// midnight do; Window is then zero. Both kinds can stand in one Limiter.
type Limit struct {
	// Units is the most that may be admitted in the window: 1 to [MaxUnits].
	Units int64
	// Window is the length of a sliding window: whole microseconds, [MinWindow] to [MaxWindow].
	Window time.Duration
	// Period makes a calendar limit. The zero Period is none.
	Period Period
	// Zone is where the Period's boundaries are. Nil means UTC. It is not used without a Period.
	Zone *time.Location
	// Name is what results and errors call the limit. Empty means its String.
	Name string
}

// Bounds of limits and calls.
const (
	// MaxUnits is the most units of a limit, and the highest cost.
	MaxUnits = driver.MaxUnits
	// MinWindow and MaxWindow bound the length of a sliding window.
	MinWindow = time.Millisecond
	MaxWindow = 400 * 24 * time.Hour
	// MaxLimits is the most limits that one subject can have.
	MaxLimits = driver.MaxLimits
	// MaxEntries is the most units of a limit under [SortedSetLog], which keeps a member for each call.
	MaxEntries = driver.MaxEntries
	// MaxSubjects is the most subjects that one decision can span.
	MaxSubjects = driver.MaxSubjects
	// MaxAny is the most subjects of one choice, and AnyGroup how many of them are compared at once: see
	// [Limiter.AllowAny].
	MaxAny   = driver.MaxChoice
	AnyGroup = driver.ChoiceGroup
	// MaxKeyLength is the most bytes of a key, with the limiter's prefix. Keys from [Key] are never longer.
	MaxKeyLength = driver.MaxKeyLength
	// MaxIDLength is the most bytes of the ID of a call.
	MaxIDLength = driver.MaxIDLength
)

// A Period is a stretch of the calendar.
type Period = driver.Period

// The periods of a calendar limit. A day has 23 or 25 hours when the zone's clocks change, and a clock
// hour that is cut by such a change ends at the change.
const (
	CalendarHour  = driver.Hour
	CalendarDay   = driver.Day
	CalendarMonth = driver.Month
)

// PerSecond returns a limit of n units in any second.
func PerSecond(n int64) Limit { return Every(n, time.Second) }

// PerMinute returns a limit of n units in any minute.
func PerMinute(n int64) Limit { return Every(n, time.Minute) }

// PerHour returns a limit of n units in any hour.
func PerHour(n int64) Limit { return Every(n, time.Hour) }

// PerDay returns a limit of n units in any 24 hours. For a calendar day see [PerCalendar].
func PerDay(n int64) Limit { return Every(n, 24*time.Hour) }

// Every returns a limit of n units in any window of the given length.
func Every(n int64, window time.Duration) Limit { return Limit{Units: n, Window: window} }

// PerCalendar returns a limit of n units a calendar period in a zone; a nil zone is UTC.
func PerCalendar(n int64, period Period, zone *time.Location) Limit {
	return Limit{Units: n, Period: period, Zone: zone}
}

// String returns the form that [ParseLimit] reads, such as "300/5m" or "10000/day@America/Los_Angeles".
func (l Limit) String() string {
	units := strconv.FormatInt(l.Units, 10)
	if l.Period != 0 {
		return units + "/" + l.Period.String() + "@" + l.zone().String()
	}
	return units + "/" + driver.FormatWindow(l.Window)
}

// label returns the name that results use.
func (l Limit) label() string {
	if l.Name != "" {
		return l.Name
	}
	return l.String()
}

func (l Limit) zone() *time.Location {
	if l.Zone == nil {
		return time.UTC
	}
	return l.Zone
}

// per returns the window in words: "5 seconds", "calendar day in UTC".
func (l Limit) per() string {
	if l.Period != 0 {
		return "calendar " + l.Period.String() + " in " + l.zone().String()
	}
	for _, unit := range [...]struct {
		of   time.Duration
		name string
	}{
		{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"},
		{time.Millisecond, "millisecond"}, {time.Microsecond, "microsecond"},
	} {
		if l.Window < unit.of || l.Window%unit.of != 0 {
			continue
		}
		if l.Window == unit.of {
			return unit.name
		}
		return strconv.FormatInt(int64(l.Window/unit.of), 10) + " " + unit.name + "s"
	}
	return l.Window.String()
}

// driver returns the limit in the form that stores take.
func (l Limit) driver() driver.Limit {
	if l.Period != 0 {
		return driver.Limit{Units: l.Units, Period: l.Period, Zone: l.zone()}
	}
	return driver.Limit{Units: l.Units, Window: l.Window.Microseconds()}
}

// Validate returns nil, or an error that is [ErrInvalidLimit] and says what is wrong.
func (l Limit) Validate() error {
	switch {
	case l.Units < 1:
		return fmt.Errorf("%w: %s: units must be at least 1", ErrInvalidLimit, l)
	case l.Units > MaxUnits:
		return fmt.Errorf("%w: %s: units must be at most %d; count in larger units", ErrInvalidLimit, l, int64(MaxUnits))
	case l.Period != 0 && l.Window != 0:
		return fmt.Errorf("%w: %s: set Window or Period, not both", ErrInvalidLimit, l)
	case l.Period > CalendarMonth:
		return fmt.Errorf("%w: %s: unknown period", ErrInvalidLimit, l)
	case l.Period != 0 && (l.zone().String() == "" || l.zone() == time.Local):
		return fmt.Errorf("%w: %s: name the zone, as time.LoadLocation does: every process must mean the same one", ErrInvalidLimit, l)
	case l.Period != 0:
		return nil
	case l.Window < MinWindow:
		return fmt.Errorf("%w: %s: the window must be at least %v", ErrInvalidLimit, l, MinWindow)
	case l.Window > MaxWindow:
		return fmt.Errorf("%w: %s: the window must be at most %v", ErrInvalidLimit, l, MaxWindow)
	case l.Window%time.Microsecond != 0:
		return fmt.Errorf("%w: %s: the window must be whole microseconds", ErrInvalidLimit, l)
	}
	return nil
}

// clip shortens what a caller sent for an error message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
