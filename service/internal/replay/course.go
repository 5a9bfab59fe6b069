package replay

import "time"

// A Course counts requests over time, in steps that begin at round times of UTC.
type Course struct {
	Start  time.Time     `json:"start"`
	Step   time.Duration `json:"step"`
	Counts []int64       `json:"counts"`
}

// Course counts the requests for which count holds, by their index.
func (t *Trace) Course(count func(i int) bool) Course {
	start, step, steps := t.steps()
	c := Course{start, step, make([]int64, steps)}
	for i := range t.events {
		if count(i) {
			c.Counts[(t.events[i].at-start.UnixMicro())/step.Microseconds()]++
		}
	}
	return c
}

// steps returns the shortest round steps of which at most 200 are as long as the trace; a long one has more, of a day.
func (t *Trace) steps() (start time.Time, step time.Duration, steps int) {
	first, last := t.Span()
	for _, step = range []time.Duration{1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 6 * 3600, 24 * 3600} {
		if step *= time.Second; last.Sub(first) < 200*step {
			break
		}
	}
	start = first.Truncate(step)
	return start, step, int(last.Sub(start)/step) + 1
}
