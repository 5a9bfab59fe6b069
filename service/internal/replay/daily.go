package replay

import (
	"context"
	"time"

	"example.com/sash"
)

// A Daily is the proposal that the requests of one day of UTC alone would give.
type Daily struct {
	// Day is a date, such as 2015-05-17.
	Day      string
	Requests int64
	Clients  int
	// Windows is how often the day knows the long window.
	Windows int
	// Limits is nil if that is less than was asked for.
	Limits []sash.Limit
}

// Daily proposes limits for each day with requests, in order. A day that knows the long window less than the given number
// of times has no proposal. The error is that of the context or the trace.
func (t *Trace) Daily(ctx context.Context, coverage *Coverage, caps Caps, burst, sustained time.Duration, windows int) ([]Daily, error) {
	var days []Daily
	var start time.Time
	var end int64
	var day Builder
	finish := func() error {
		part := day.Trace()
		if len(part.clients) == 0 {
			return nil
		}
		d := Daily{Day: start.Format(time.DateOnly), Requests: part.counts.Requests, Clients: len(part.clients)}
		if d.Windows = coverage.Between(sustained, start, time.UnixMicro(end)); d.Windows >= windows {
			s, err := part.Suggest(ctx, caps, burst, sustained)
			if err != nil {
				return err
			}
			d.Limits = s.Limits
		}
		days = append(days, d)
		return nil
	}
	err := t.each(ctx, func(e *event) error {
		if start.IsZero() || e.at >= end {
			if err := finish(); err != nil {
				return err
			}
			start = time.UnixMicro(e.at).UTC().Truncate(24 * time.Hour)
			end = start.Add(24 * time.Hour).UnixMicro()
		}
		day.Add(e.at, t.selection(e))
		return nil
	})
	if err == nil {
		err = finish()
	}
	return days, err
}
