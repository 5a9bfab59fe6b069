// Package load calls a limiter from many goroutines at once and measures how fast the answers come.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"example.com/sash/internal/bench/report"
)

// One quick call in sampled is timed: reading the clock costs as much as a decision in memory. The call after
// a slow one is timed, too.
const (
	sampled  = 8
	slowCall = 10 * time.Microsecond
)

// The phases of a run.
const (
	warming int32 = iota
	measuring
	over
)

// A Decide makes one decision on a key.
type Decide func(ctx context.Context, key string) (allowed bool, err error)

// Admitting makes a refusal an error, where a limit has room for every call: a refusal costs less than an admission.
func Admitting(decide Decide) Decide {
	return func(ctx context.Context, key string) (bool, error) {
		allowed, err := decide(ctx, key)
		if err == nil && !allowed {
			err = errors.New("load: a call was refused that has room")
		}
		return allowed, err
	}
}

// picks is how many keys are chosen ahead, so that choosing takes no time while it is measured.
const picks = 1 << 16

// Keys names n keys and returns them in the order of the calls, which depends on the seed alone. Skew is that of
// a Zipf distribution, 0 if all keys are equally likely.
func Keys(n int, skew float64, seed uint64) []string {
	random := rand.New(rand.NewPCG(seed, 2))
	choose := func() int { return random.IntN(n) }
	if skew > 0 {
		zipf := rand.NewZipf(random, skew, 1, uint64(n-1))
		choose = func() int { return int(zipf.Uint64()) }
	}
	chosen := make([]string, picks)
	for i := range chosen {
		chosen[i] = Key(choose())
	}
	return chosen
}

// Key returns the name of key i.
func Key(i int) string { return fmt.Sprintf("client:%06d", i) }

// A Run is one turn of a contender.
type Run struct {
	Decide     Decide
	Keys       []string // from [Keys]
	Goroutines int
	Rate       float64       // calls a second over all goroutines, at random instants; 0 is as many as are answered
	Duration   time.Duration // of the measurement; a quarter of it more is for warming up
	Meters     []Meter       // read when the measurement begins and when it ends
}

// An Outcome is the result of a run.
type Outcome struct {
	Decisions, Failed int64
	Err               error // one of the failures
	PerSecond         float64
	P50, P99          float64   // microseconds
	Allocs            float64   // of this process, per decision
	Used              []float64 // of each meter, per decision
}

// Do makes the calls. It returns an error if a meter fails; failed decisions are part of the outcome.
func (r Run) Do() (Outcome, error) {
	var phase atomic.Int32
	workers := make([]*worker, r.Goroutines)
	var group sync.WaitGroup
	for i := range workers {
		workers[i] = &worker{times: histogram()}
		group.Go(func() { workers[i].work(r, i*(picks/r.Goroutines), &phase) })
	}
	defer group.Wait()
	defer phase.Store(over)

	time.Sleep(r.Duration / 4)
	before, err := r.read()
	if err != nil {
		return Outcome{}, err
	}
	var mem [2]runtime.MemStats
	runtime.ReadMemStats(&mem[0])
	began := time.Now()
	phase.Store(measuring)
	time.Sleep(r.Duration)
	phase.Store(over)
	wall := time.Since(began)
	runtime.ReadMemStats(&mem[1])
	after, err := r.read()
	group.Wait()

	o := Outcome{Used: make([]float64, len(after))}
	times := histogram()
	for _, w := range workers {
		o.Decisions += w.decisions
		o.Failed += w.failed
		if w.err != nil {
			o.Err = w.err
		}
		times.Merge(w.times)
	}
	each := 1 / float64(max(1, o.Decisions))
	o.PerSecond = float64(o.Decisions) / wall.Seconds()
	o.P50, o.P99 = float64(times.ValueAtQuantile(50))/1000, float64(times.ValueAtQuantile(99))/1000
	o.Allocs = float64(mem[1].Mallocs-mem[0].Mallocs) * each
	for i := range after {
		o.Used[i] = (after[i] - before[i]) * each
	}
	return o, err
}

// Alternate makes each of a round's runs once, and begins each round with another one. It returns the figures of each run
// over all rounds. A failed decision is an error.
func Alternate(rounds int, runs func(round int) []Run) ([]Figures, error) {
	var figures []Figures
	for round := range rounds {
		now := runs(round)
		figures = append(figures, make([]Figures, len(now)-len(figures))...)
		for i := range now {
			at := (round + i) % len(now)
			out, err := now[at].Do()
			if err == nil && out.Failed > 0 {
				err = fmt.Errorf("load: %d of %d decisions failed: %w", out.Failed, out.Failed+out.Decisions, out.Err)
			}
			if err != nil {
				return nil, err
			}
			figures[at].Add(out)
		}
	}
	return figures, nil
}

// Used returns the rounds of one meter, for each of several figures.
func Used(all []Figures, meter int) []report.Figure {
	used := make([]report.Figure, len(all))
	for i, f := range all {
		used[i] = f.Used[meter]
	}
	return used
}

func (r Run) read() ([]float64, error) {
	var totals []float64
	for _, meter := range r.Meters {
		total, err := meter()
		if err != nil {
			return nil, err
		}
		totals = append(totals, total)
	}
	return totals, nil
}

// A worker counts what one goroutine did while the run was measured.
type worker struct {
	decisions, failed int64
	err               error
	times             *hdrhistogram.Histogram // nanoseconds
	_                 [64]byte                // keeps workers off one another's cache lines
}

const longest = time.Minute

func histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 2) }

func (w *worker) work(r Run, next int, phase *atomic.Int32) {
	ctx := context.Background()
	due := time.Now()
	for slow := true; ; {
		if r.Rate > 0 {
			due = due.Add(time.Duration(rand.ExpFloat64() / r.Rate * float64(r.Goroutines) * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		now := phase.Load()
		if now == over {
			return
		}
		key := r.Keys[next%picks]
		next++
		timed := slow || next%sampled == 0
		var began time.Time
		if timed {
			began = time.Now()
		}
		_, err := r.Decide(ctx, key)
		var took time.Duration
		if timed {
			took = time.Since(began)
			slow = took > slowCall
		}
		if now != measuring {
			continue
		}
		if err != nil {
			w.failed++
			w.err = err
			continue
		}
		w.decisions++
		if timed {
			_ = w.times.RecordValue(int64(min(took, longest))) // within the histogram's range
		}
	}
}

// Figures are the rounds of one contender.
type Figures struct {
	PerSecond, P50, P99, Allocs report.Figure
	Failed                      report.Figure   // percent
	Used                        []report.Figure // by meter
}

// Add records one round.
func (f *Figures) Add(o Outcome) {
	f.PerSecond.Add(o.PerSecond)
	f.P50.Add(o.P50)
	f.P99.Add(o.P99)
	f.Allocs.Add(o.Allocs)
	f.Failed.Add(100 * float64(o.Failed) / float64(max(1, o.Decisions+o.Failed)))
	if f.Used == nil {
		f.Used = make([]report.Figure, len(o.Used))
	}
	for i, used := range o.Used {
		f.Used[i].Add(used)
	}
}
