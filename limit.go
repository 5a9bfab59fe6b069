package sash

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/sash/driver"
)

// A Limit is a number of units in a window of time.
//
// With a Window, the window slides: at most Units are admitted in any trailing Window. With a Period, units are counted since the last
// boundary of the calendar in Zone, as upstream quotas that reset at midnight do; Window is then zero. Both kinds can stand in one Limiter.
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
	// MaxSubjects is the most subjects that one decision can span.
	MaxSubjects = driver.MaxSubjects
	// MaxAny is the most subjects of one choice: see [Limiter.AllowAny].
	MaxAny = driver.MaxChoice
	// MaxKeyLength is the most bytes of a key, with the limiter's prefix. Keys from [Key] are never longer.
	MaxKeyLength = driver.MaxKeyLength
)

// A Period is a stretch of the calendar.
type Period = driver.Period

// The periods of a calendar limit. A day has 23 or 25 hours when the zone's clocks change; such a change ends a clock hour, too.
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

func (l Limit) label() string {
	return cmp.Or(l.Name, l.String())
}

func (l Limit) zone() *time.Location {
	return cmp.Or(l.Zone, time.UTC)
}

// per returns the window in words: "5 seconds", "calendar day in UTC".
func (l Limit) per() string {
	if l.Period != 0 {
		return "calendar " + l.Period.String() + " in " + l.zone().String()
	}
	for i, of := range [...]time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond} {
		name := [...]string{"day", "hour", "minute", "second", "millisecond"}[i]
		if n := int64(l.Window / of); n == 1 && l.Window == of {
			return name
		} else if n > 0 && l.Window%of == 0 {
			return strconv.FormatInt(n, 10) + " " + name + "s"
		}
	}
	return l.Window.String()
}

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

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// MarshalText writes the limit as [Limit.String] does, without its Name. A limit that is not valid is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads a limit as [ParseLimit] does, for libraries of configuration, flags and JSON. An error leaves it as it was.
func (l *Limit) UnmarshalText(text []byte) error {
	read, err := ParseLimit(string(text))
	if err == nil {
		*l = read
	}
	return err
}

// ParseLimit reads a limit: units, a slash, and a window ("300/5m", "25/5s", "9500/24h", "60/h", "1000/7d") or a calendar period with its
// zone ("10000/day@America/Los_Angeles", "100/month@UTC"). A window is a [time.ParseDuration] string, or whole days with "d"; without a
// number it is one. The error is [ErrInvalidLimit].
func ParseLimit(s string) (Limit, error) {
	fail := func(why string) (Limit, error) {
		return Limit{}, fmt.Errorf("%w: %q: %s", ErrInvalidLimit, clip(s), why)
	}
	units, rest, ok := strings.Cut(s, "/")
	if !ok {
		return fail(`write units, a slash and a window, such as "300/5m"`)
	}
	n, err := strconv.ParseInt(units, 10, 64)
	if err != nil {
		return fail("the units before the slash must be a whole number")
	}
	l := Limit{Units: n}
	if name, zone, ok := strings.Cut(rest, "@"); ok {
		for p := CalendarHour; p <= CalendarMonth; p++ {
			if name == p.String() {
				l.Period = p
			}
		}
		if l.Period == 0 {
			return fail("a calendar period is hour, day or month")
		}
		if zone == "" || zone == "Local" {
			return fail(`name the zone, such as "day@UTC" or "day@America/Los_Angeles"`)
		}
		if l.Zone, err = time.LoadLocation(zone); err != nil {
			return fail("unknown time zone " + strconv.Quote(clip(zone)))
		}
	} else if l.Window, err = parseWindow(rest); err != nil {
		return fail(`the window after the slash must be a duration, such as "5s", "1m30s", "24h" or "7d", or a calendar period with its zone, "day@UTC"`)
	}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

func parseWindow(s string) (time.Duration, error) {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		s = "1" + s
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}
