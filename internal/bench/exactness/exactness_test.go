package exactness

import (
	"testing"
	"testing/synctest"
	"time"
)

// at is an admission that took a millisecond.
func at(ms int) admission {
	asked := time.UnixMilli(int64(1_000_000 + ms))
	return admission{asked, asked.Add(time.Millisecond)}
}

func TestWorstCountsWhatSurelyHappenedWithinAWindow(t *testing.T) {
	for _, c := range []struct {
		name     string
		admitted []admission
		want     int
	}{
		{"nothing", nil, 0},
		{"all within", []admission{at(0), at(50), at(98)}, 3},
		{"in any order", []admission{at(98), at(0), at(50)}, 3},
		{"the last may have been outside", []admission{at(0), at(50), at(99)}, 2},
		{"a later window is worse", []admission{at(0), at(200), at(250), at(290)}, 3},
	} {
		if got := worst(c.admitted, 100*time.Millisecond); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The schedule finds what a fixed window that starts with the first call lets through.
func TestRunFindsTwiceTheLimitOfAFixedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const units, window = 50, time.Second
		var start time.Time
		var used int
		lock := make(chan struct{}, 1)
		count := Run(window, func() (bool, error) {
			lock <- struct{}{}
			defer func() { <-lock }()
			time.Sleep(time.Millisecond)
			if now := time.Now(); start.IsZero() || now.Sub(start) >= window {
				start, used = now, 0
			}
			used++
			return used <= units, nil
		})
		// The first call of the first window was long before the boundary.
		if count.Worst != 2*units-1 {
			t.Errorf("worst %d, want %d", count.Worst, 2*units-1)
		}
	})
}
