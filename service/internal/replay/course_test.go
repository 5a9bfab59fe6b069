package replay

import (
	"testing"
	"time"
)

// A course has every request in the step of its time. Steps begin at round times, and are at most 201 up to half a year.
func TestACourseHasRoundSteps(t *testing.T) {
	for span, want := range map[time.Duration]time.Duration{
		0: time.Second, 199 * time.Second: time.Second, 200 * time.Second: 5 * time.Second, 3 * time.Hour: time.Minute,
		7 * 24 * time.Hour: time.Hour, 180 * 24 * time.Hour: 24 * time.Hour,
	} {
		var b Builder
		start := time.Date(2026, 3, 28, 23, 58, 59, 500_000_000, time.UTC)
		for i := range int64(50) {
			b.Add(start.UnixMicro()+i*span.Microseconds()/49, Selection{Key: "a", Cost: 3, Route: "/"})
		}
		trace := b.Trace()
		c := trace.Course(func(i int) bool { return i%2 == 0 })
		if c.Step != want || !c.Start.Equal(start.Truncate(want)) || len(c.Counts) > 201 {
			t.Errorf("%v: %d steps of %v from %v, want %v", span, len(c.Counts), c.Step, c.Start, want)
		}
		for i, n := range c.Counts {
			counted := int64(0)
			for j := 0; j < 50; j += 2 {
				at := start.UnixMicro() + int64(j)*span.Microseconds()/49
				if from := c.Start.Add(time.Duration(i) * c.Step).UnixMicro(); from <= at && at < from+c.Step.Microseconds() {
					counted++
				}
			}
			if n != counted {
				t.Errorf("%v: %d requests in step %d, want %d", span, n, i, counted)
			}
		}
	}
}
