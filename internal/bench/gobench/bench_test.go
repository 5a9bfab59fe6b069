package gobench

import (
	"sync"
	"testing"
	"time"

	"example.com/sash"
)

// BenchmarkDecide is every contender under every load, as `make bench` runs them:
//
//	go test -bench . -benchmem ./gobench
func BenchmarkDecide(b *testing.B) {
	for _, l := range loads() {
		for _, c := range contenders() {
			if l.fits(c) {
				b.Run(l.name+"/"+c.name, l.bench(c))
			}
		}
	}
}

func TestMemstoreDoesNotAllocateOnTheHotPath(t *testing.T) {
	hour, day := sash.PerHour(100), sash.PerDay(1000)
	for _, c := range []struct {
		name   string
		limits []sash.Limit
		used   int // calls before
	}{
		{"admitted, one window", []sash.Limit{sash.Every(1000, time.Millisecond)}, 100_000},
		{"admitted, two windows", []sash.Limit{sash.Every(1000, time.Millisecond), sash.Every(1000, 2*time.Millisecond)}, 100_000},
		{"refused, one window", []sash.Limit{hour}, 100},
		{"refused, two windows", []sash.Limit{hour, day}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := openOurs(c.limits...)
			for range c.used { // the log has its size when the window has been full
				limiter.allow("k")
			}
			if n := testing.AllocsPerRun(1000, func() { limiter.allow("k") }); n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}

// What is called exact in the table must be: no more than the limit in any window, although two callers
// ask all the time, and no refusal while there is room.
func TestTheExactAreExact(t *testing.T) {
	const units, window = 40, 30 * time.Millisecond
	for _, c := range contenders() {
		if !c.exact {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limiter := c.open(sash.Every(units, window))
			defer limiter.close()
			for i := range units {
				if !limiter.allow("fresh") {
					t.Fatalf("call %d of %d was refused", i+1, units)
				}
			}
			admitted := hammer(limiter, 5*window)
			if len(admitted) <= units {
				t.Fatalf("%d admitted in five windows of %d", len(admitted), units)
			}
			for _, first := range admitted {
				n := 0
				// Those that surely happened within a window of the first. Clocks of stores count whole
				// microseconds, so that an entry is up to one later than it says.
				for _, a := range admitted {
					if !a.asked.Before(first.asked) && a.answered.Sub(first.asked) < window-time.Microsecond {
						n++
					}
				}
				if n > units {
					t.Fatalf("%d admitted within a window of %d", n, units)
				}
			}
		})
	}
}

// An admission happened somewhere between the two times.
type admission struct{ asked, answered time.Time }

// hammer asks from two goroutines for as long as given, and returns the admissions.
func hammer(limiter limiter, long time.Duration) []admission {
	var mu sync.Mutex
	var admitted []admission
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for began := time.Now(); time.Since(began) < long; {
				asked := time.Now()
				if limiter.allow("busy") {
					mu.Lock()
					admitted = append(admitted, admission{asked, time.Now()})
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return admitted
}
