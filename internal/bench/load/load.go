// Package load asks from many goroutines at once and tells how fast the answers came.
package load

import (
	"context"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// sampled is of how many quick calls one has its time taken: looking at a clock costs as much as a call that
// is decided in memory. After a slow call the next one is timed too.
const (
	sampled  = 8
	slowCall = 10 * time.Microsecond
)

// A phase of a run.
const (
	warming int32 = iota
	measuring
	over
)

// A worker counts what one goroutine did while the run was measured.
type worker struct {
	decisions, allowed, failed int64
	err                        error
	times                      histogram
	_                          [64]byte // no line of the cache belongs to two
}

// Picks is how many keys have to be chosen ahead, so that choosing costs no time.
const Picks = 1 << 16

// Decide asks for one decision on a key.
type Decide func(ctx context.Context, key string) (allowed bool, err error)

// Drive asks for the chosen keys, of which there are Picks, from goroutines for as long as given, after a time to
// warm up. Before is called at the moment from which is measured, and after at the end.
func Drive(decide Decide, chosen []string, goroutines int, warm, long time.Duration, before, after func() error) (Outcome, error) {
	var phase atomic.Int32
	workers := make([]worker, goroutines)
	var group sync.WaitGroup
	ctx := context.Background()
	for i := range workers {
		w := &workers[i]
		next := i * (Picks / goroutines)
		group.Go(func() {
			slow := true
			for {
				now := phase.Load()
				if now == over {
					return
				}
				key := chosen[next&(Picks-1)]
				next++
				timed := slow || next%sampled == 0
				var asked time.Time
				if timed {
					asked = time.Now()
				}
				allowed, err := decide(ctx, key)
				var took time.Duration
				if timed {
					took = time.Since(asked)
					slow = took > slowCall
				}
				if now != measuring {
					continue
				}
				switch {
				case err != nil:
					w.failed++
					w.err = err
					continue
				case allowed:
					w.allowed++
				}
				w.decisions++
				if timed {
					w.times.add(took)
				}
			}
		})
	}
	time.Sleep(warm)
	err := before()
	var mem [2]runtime.MemStats
	runtime.ReadMemStats(&mem[0])
	began := time.Now()
	phase.Store(measuring)
	time.Sleep(long)
	phase.Store(over)
	wall := time.Since(began)
	runtime.ReadMemStats(&mem[1])
	if err == nil {
		err = after()
	}
	group.Wait()
	return sum(workers, wall, mem[1].Mallocs-mem[0].Mallocs), err
}

// An Outcome is what came of a run.
type Outcome struct {
	Decisions, Allowed, Failed int64
	Err                        error // one of the failures
	PerSecond                  float64
	P50, P99                   float64 // microseconds
	Allocs                     float64 // of this process, a decision
}

func sum(workers []worker, wall time.Duration, mallocs uint64) Outcome {
	var o Outcome
	var times histogram
	for i := range workers {
		w := &workers[i]
		o.Decisions += w.decisions
		o.Allowed += w.allowed
		o.Failed += w.failed
		if w.err != nil {
			o.Err = w.err
		}
		times.merge(&w.times)
	}
	o.PerSecond = float64(o.Decisions) / wall.Seconds()
	o.P50, o.P99 = times.quantile(0.50), times.quantile(0.99)
	o.Allocs = float64(mallocs) / float64(max(1, o.Decisions))
	return o
}

// A histogram counts times in steps of about 3 %.
type histogram struct{ counts [64 * steps]uint32 }

const steps = 32

func (h *histogram) add(d time.Duration) {
	n := uint64(max(d, steps))
	shift := bits.Len64(n) - 6 // 32 to 63 is left
	h.counts[shift*steps+int(n>>shift)-steps]++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// quantile returns the middle of the step that the quantile is in, in microseconds.
func (h *histogram) quantile(q float64) float64 {
	all := uint64(0)
	for _, n := range h.counts {
		all += uint64(n)
	}
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += uint64(n); n > 0 && float64(seen) >= q*float64(all) {
			return (float64(i%steps+steps) + 0.5) * float64(uint64(1)<<(i/steps)) / 1000
		}
	}
	return 0
}
