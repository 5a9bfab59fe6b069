package logs

import (
	"fmt"
	"time"
)

// secondsText returns a duration for people: two units at most, and seconds at least.
func secondsText(seconds float64) string {
	const day, year = 24 * 60 * 60, 365.25 * 24 * 60 * 60
	switch {
	case seconds >= 2*year:
		return fmt.Sprintf("%.1f years", seconds/year)
	case seconds >= 100*day:
		return fmt.Sprintf("%.0f days", seconds/day)
	case seconds >= 2*day:
		hours := int64(seconds/60/60 + 0.5)
		if hours%24 == 0 {
			return fmt.Sprintf("%d days", hours/24)
		}
		return fmt.Sprintf("%d days %dh", hours/24, hours%24)
	case seconds >= 60*60:
		minutes := int64(seconds/60 + 0.5)
		return fmt.Sprintf("%dh%dm", minutes/60, minutes%60)
	case seconds > 0 && seconds < 1:
		return time.Duration(seconds * 1e9).Round(time.Millisecond).String()
	}
	return time.Duration(seconds * 1e9).Round(time.Second).String()
}
