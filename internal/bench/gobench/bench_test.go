package gobench

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/internal/bench/exactness"
)

// BenchmarkDecide runs every contender in every scenario, as `make bench` does:
//
//	go test -bench . -benchmem ./gobench
func BenchmarkDecide(b *testing.B) {
	for _, s := range scenarios() {
		for _, c := range contenders() {
			if s.fits(c) {
				b.Run(s.name+"/"+c.name, s.bench(c))
			}
		}
	}
}

func TestMemstoreDoesNotAllocateOnTheHotPath(t *testing.T) {
	hour, day := sash.PerHour(100), sash.PerDay(1000)
	for _, c := range []struct {
		name   string
		limits []sash.Limit
		used   int // calls before the measured ones
	}{
		{"admitted, one window", []sash.Limit{sash.Every(1000, time.Millisecond)}, 100_000},
		{"admitted, two windows", []sash.Limit{sash.Every(1000, time.Millisecond), sash.Every(1000, 2*time.Millisecond)}, 100_000},
		{"refused, one window", []sash.Limit{hour}, 100},
		{"refused, two windows", []sash.Limit{hour, day}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := openOurs(c.limits...)
			for range c.used { // once the window has been full, the log has its size
				limiter.allow("k")
			}
			if n := testing.AllocsPerRun(1000, func() { limiter.allow("k") }); n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}

// The contenders that the table calls exact never admit more than the limit in a window, although callers never
// pause, and never refuse while there is room.
func TestTheExactAreExact(t *testing.T) {
	const units, window = 40, 30 * time.Millisecond
	for _, c := range contenders() {
		if !c.exact {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := c.open(sash.Every(units, window))
				for i := range units {
					if !limiter.allow("fresh") {
						t.Fatalf("call %d of %d was refused", i+1, units)
					}
				}
				count := exactness.Run(window, func() (bool, error) {
					time.Sleep(10 * time.Microsecond)
					return limiter.allow("busy"), nil
				})
				// One call at the start, and full windows around the boundaries at 1 and at 2 windows.
				if count.Worst > units || count.All < 2*units {
					t.Errorf("%d admitted within a window of %d, %d in 2.4 windows", count.Worst, units, count.All)
				}
			})
		})
	}
}
