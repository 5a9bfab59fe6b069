package replay

import "time"

// A Course counts requests over time, in steps that begin at round times of UTC.
type Course struct {
	Start  time.Time
	Step   time.Duration
	Counts []int64
}

// Course counts the requests for which count holds, by their index.
func (t *Trace) Course(count func(i int) bool) (c Course) {
	first, last := t.Span()
	for _, c.Step = range []time.Duration{
		time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
	} {
		if last.Sub(first) < 200*c.Step {
			break
		}
	}
	c.Start = first.Truncate(c.Step)
	c.Counts = make([]int64, 1+last.Sub(c.Start)/c.Step)
	for i := range t.events {
		if count(i) {
			c.Counts[time.UnixMicro(t.events[i].at).Sub(c.Start)/c.Step]++
		}
	}
	return c
}
