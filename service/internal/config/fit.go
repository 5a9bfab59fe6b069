package config

import (
	"time"

	"example.com/sash"
)

// resolutionSteps is the number of steps in the shortest window with an automatic resolution: a unit is held at most a
// thousandth of that window too long.
const resolutionSteps = 1000

// Fit validates limits with their options and fills in unset options. A limit with more units than an exact log can
// hold uses sliding-buckets. The default resolution of sliding-buckets is a thousandth of the shortest window, or
// longer if the longest window needs it. The error is sash.ErrInvalidLimit.
func Fit(opts *sash.Options, limits []sash.Limit) error {
	if opts.Algorithm == sash.SlidingLog && opts.Resolution == 0 {
		for _, l := range limits {
			if l.Units > sash.MaxEntries {
				opts.Algorithm = sash.SlidingBuckets
			}
		}
	}
	if opts.Algorithm == sash.SlidingBuckets && opts.Resolution == 0 {
		opts.Resolution = resolution(limits)
	}
	_, err := sash.NewPolicy(opts, limits...)
	return err
}

func resolution(limits []sash.Limit) time.Duration {
	var shortest, longest time.Duration
	for _, l := range limits {
		length := l.Window
		switch l.Period {
		case sash.CalendarHour:
			length = time.Hour
		case sash.CalendarDay:
			length = 26 * time.Hour
		case sash.CalendarMonth:
			length = 33 * 24 * time.Hour
		}
		if shortest == 0 || length < shortest {
			shortest = length
		}
		longest = max(longest, length)
	}
	step := max(shortest/resolutionSteps, 2*longest/(sash.MaxEntries-2))
	// Round up to whole milliseconds if there are any: the step is part of the keys' names.
	if step > time.Millisecond {
		return (step + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return max(step.Truncate(time.Microsecond), time.Microsecond)
}
