package sash

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MarshalText writes the limit as [Limit.String] does, without its Name. A limit that is not valid is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads a limit as [ParseLimit] does, so that libraries for configuration, flags and JSON read it. An error
// leaves the limit as it was.
func (l *Limit) UnmarshalText(text []byte) error {
	read, err := ParseLimit(string(text))
	if err == nil {
		*l = read
	}
	return err
}

// ParseLimit reads a limit: units, a slash, and a window ("300/5m", "25/5s", "9500/24h", "60/h",
// "1000/7d") or a calendar period with its zone ("10000/day@America/Los_Angeles", "100/month@UTC").
// A window is a [time.ParseDuration] string, or whole days with "d"; without a number it is one.
// Words such as "10 per minute" are refused with the form to write. The error is [ErrInvalidLimit].
func ParseLimit(s string) (Limit, error) {
	fail := func(why string) (Limit, error) {
		if forms := spelled(s); forms != "" {
			why = "write " + forms
		}
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
	} else {
		if l.Window, err = parseWindow(rest); err != nil {
			return fail(`the window after the slash must be a duration, such as "5s", "1m30s", "24h" or "7d"`)
		}
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

// words are windows as people and other libraries write them, and as [ParseLimit] reads them.
var words = map[string]string{
	"s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m", "h": "h", "hr": "h", "hour": "h",
	"d": "d", "day": "d", "week": "7d", "month": "30d",
}

// spelled returns the forms to write for a limit in words, quoted, or "" if the text is none.
func spelled(s string) string {
	s = strings.Join(strings.Fields(strings.ToLower(clip(s))), " ")
	units, window, ok := strings.Cut(strings.Replace(s, " per ", "/", 1), "/")
	units, window = strings.TrimSpace(units), strings.TrimSpace(window)
	if n, err := strconv.ParseInt(units, 10, 64); !ok || err != nil || n < 1 {
		return ""
	}
	word := strings.TrimLeft(window, "0123456789")
	number := strings.TrimSuffix(window, word)
	word = strings.TrimSpace(word)
	unit := words[word]
	if unit == "" {
		word = strings.TrimSuffix(word, "s")
		unit = words[word]
	}
	if unit == "" || number != "" && len(unit) > 1 {
		return ""
	}
	if d, err := parseWindow(number + unit); err != nil || d < MinWindow || d > MaxWindow {
		return ""
	}
	form := strconv.Quote(units + "/" + number + unit)
	if number == "" && (word == "hour" || word == "day" || word == "month") {
		form += ", or " + strconv.Quote(units+"/"+word+"@UTC") + " for each " + word + " of the calendar, in a zone"
	}
	return form
}
