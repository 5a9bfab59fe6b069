package window

import "slices"

// A Fixed is the fixed window: a counter per window that starts at a multiple of its length since the
// epoch, or at a boundary of the calendar. It admits up to twice its units around a boundary.
type Fixed struct {
	counters []fixedCounter
}

type fixedCounter struct {
	span       Span
	start, end int64
	count      int64
}

// period returns the window around now: start <= now < end.
func (s Span) period(now int64) (start, end int64) {
	if s.Period != 0 {
		return s.Bounds(now)
	}
	start = now - mod(now, s.Window)
	return start, start + s.Window
}

// at returns the counter of a span as it stands at now, or nil where none was charged. A counter that
// starts later than now was left behind by a clock that went back: it becomes the one of now.
func (f *Fixed) at(now int64, span Span) *fixedCounter {
	for i := range f.counters {
		c := &f.counters[i]
		if !c.span.same(span) {
			continue
		}
		if now < c.start || now >= c.end {
			if now >= c.end {
				c.count = 0
			}
			c.start, c.end = span.period(now)
		}
		return c
	}
	return nil
}

// Look implements State.
func (f *Fixed) Look(now, cost int64, limits []Limit, out []Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		var used, end int64
		if c := f.at(now, limit.Span); c != nil {
			used, end = c.count, c.end
		}
		s := Status{Remaining: max(0, limit.Units-used)}
		if used > 0 {
			s.Release, s.Reset = end-now, end-now
		}
		if used+cost > limit.Units {
			refusals |= 1 << i
			s.Retry = end - now
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State.
func (f *Fixed) Charge(now, cost int64, limits []Limit) {
	for i := range limits {
		span := limits[i].Span
		c := f.at(now, span)
		if c == nil {
			start, end := span.period(now)
			f.counters = slices.DeleteFunc(f.counters, func(c fixedCounter) bool { return c.end <= now })
			f.counters = append(f.counters, fixedCounter{span: span, start: start, end: end})
			c = &f.counters[len(f.counters)-1]
		}
		c.count += cost
	}
}

// Refund implements State.
func (f *Fixed) Refund(now, at, cost int64, limits []Limit) {
	for i := range limits {
		if c := f.at(now, limits[i].Span); c != nil && c.start <= at && at < c.end {
			c.count = max(0, c.count-cost)
		}
	}
}

// Expires implements State.
func (f *Fixed) Expires() int64 {
	var t int64
	for i := range f.counters {
		t = max(t, f.counters[i].end)
	}
	return t
}
