package replay

import (
	"fmt"
	"testing"
	"time"
)

// A log knows a window as often as it covers one: silences do not count, and samples count only what they hold.
func TestWhatALogKnows(t *testing.T) {
	every := func(from time.Duration, step time.Duration, until time.Duration) (all []call) {
		for at := from; at < until; at += step {
			all = append(all, call{at: noon.Add(at), address: fmt.Sprint(int64(at/time.Second) % 40), bytes: 1})
		}
		return all
	}
	const day = 24 * time.Hour
	sampled := []call(nil)
	for hour := range time.Duration(100) {
		sampled = append(sampled, every(hour*time.Hour, time.Second, hour*time.Hour+time.Minute)...)
	}
	nights := []call(nil)
	for d := range time.Duration(14) {
		nights = append(nights, every(d*day, 10*time.Second, d*day+9*time.Hour)...)
	}
	for name, tt := range map[string]struct {
		log     []call
		sampled bool
		known   map[time.Duration]int
	}{
		"71 seconds":                {every(0, 500*time.Millisecond, 71*time.Second), false, map[time.Duration]int{time.Second: 70, 5 * time.Second: 14, 10 * time.Second: 7, time.Hour: 1}},
		"a day":                     {every(0, time.Second, day), false, map[time.Duration]int{time.Hour: 24, day: 1, 10 * time.Second: 8640}},
		"one request in 20 minutes": {every(0, 20*time.Minute, 10*day), false, map[time.Duration]int{10 * time.Second: 720, time.Hour: 239}},
		"a minute of each hour":     {sampled, true, map[time.Duration]int{10 * time.Second: 600, time.Minute: 100, 5 * time.Minute: 0, time.Hour: 0, day: 0}},
		"office hours":              {nights, false, map[time.Duration]int{time.Hour: 14 * 8, day: 13}},
		"two days, a month apart":   {append(every(0, time.Second, day), every(30*day, time.Second, 31*day)...), false, map[time.Duration]int{time.Hour: 48, day: 2, 10 * day: 2}},
		"one request":               {every(0, time.Second, time.Second), false, map[time.Duration]int{time.Second: 1, time.Hour: 1}},
		"nothing":                   {nil, false, map[time.Duration]int{time.Second: 0}},
	} {
		c := covered(t, made(tt.log))
		if c.Sampled != tt.sampled {
			t.Errorf("%s: sampled %v, %d of %d minutes", name, c.Sampled, c.Busy, c.Minutes)
		}
		for window, want := range tt.known {
			if got := c.Windows(window); got != want {
				t.Errorf("%s: knows %v %d times, want %d", name, window, got, want)
			}
		}
	}
}
