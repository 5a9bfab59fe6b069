// Package verify calls a store from many concurrent workers, records every result, and checks the whole history against
// the definition of a sliding limit:
//
//	for every instant t, the units admitted in (t − window, t] are at most the limit's units;
//	a call is refused only when a limit has no room for it;
//	a refusal returns the time until the same call fits, if no other call arrives.
//
// It works in rounds of a few seconds. Each round has its own keys, with limits drawn from the seed: some hot and some
// not, with one window or several. A key rests through most of every second window. The workers then call as fast as
// possible across the boundary and through the next window. This exposes an algorithm that counts from boundaries or
// admits one burst after another.
package verify

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

const (
	round       = 4 * time.Second
	callTimeout = time.Second
	// lookTimeout exceeds the time that a client takes to connect, so that the error has the reason of a failure.
	lookTimeout = 3 * time.Second
	// resolution is the resolution of sliding-buckets, which may hold a unit that much longer than its window.
	resolution = 10 * time.Millisecond
)

// Options for Run.
type Options struct {
	For       time.Duration // the duration of the run
	Seed      uint64        // determines limits, costs and the order of keys, but not the timing
	Workers   int
	Algorithm sash.Algorithm
}

// A Report is the result of a verification: counts of calls and checks, and the faults found.
type Report struct {
	Keys       int           `json:"keys"`
	Admitted   int           `json:"admitted"` // calls
	Units      int64         `json:"units"`    // of them
	Refused    int           `json:"refused"`
	Unanswered int           `json:"unanswered"`                  // calls without an answer
	Doubtful   int           `json:"doubtful_refusals,omitempty"` // after a call on the same key without an answer, so that less can be checked
	Took       time.Duration `json:"-"`
	Rounds     int           `json:"-"`
	Faults     []Fault       `json:"-"` // one for each key with a violation; the one with the fullest window first
}

// Calls returns the number of calls.
func (r *Report) Calls() int { return r.Admitted + r.Refused + r.Unanswered }

// A Fault is a key whose history violates a guarantee.
type Fault struct {
	Key string
	judge.Findings
}

func (r *Report) sortFaults() {
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(excess(b.Over), excess(a.Over)) })
}

func excess(w *judge.Window) int64 {
	if w == nil {
		return 0
	}
	return w.Units - w.Limit.Units
}

// ErrClock means that a server's clock went back, so the times do not show which calls share a window.
var ErrClock = errors.New("the server's clock went back during the run (or another server took over whose clock is behind): the times prove nothing; run it again, and see sash doctor")

// Run verifies a store. It ends after opts.For, after a round with a violation, or when the context ends. It
// removes its keys. After an error, the report covers the completed rounds.
func Run(ctx context.Context, store driver.Store, opts Options) (Report, error) {
	var report Report
	var failed error // the last call
	began := time.Now()
	for ctx.Err() == nil && len(report.Faults) == 0 && (report.Rounds == 0 || time.Since(began) < opts.For) {
		s, err := newStage(store, opts, report.Rounds)
		if err != nil {
			return report, err
		}
		err = s.run(ctx, min(round, opts.For-time.Since(began)))
		s.clean(ctx)
		report.Took = time.Since(began)
		if err != nil && ctx.Err() == nil {
			return report, err
		}
		s.judge(&report)
		for _, w := range s.workers {
			failed = cmp.Or(w.failed, failed)
		}
	}
	report.sortFaults()
	if report.Admitted+report.Refused == 0 {
		return report, cmp.Or(failed, errors.New("the run ended before any call got an answer"))
	}
	return report, nil
}

func (s *stage) judge(report *Report) {
	report.Rounds++
	report.Keys += len(s.subjects)
	for i, subject := range s.subjects {
		h := judge.History{Limits: subject.limits, Hold: s.hold}
		for _, w := range s.workers {
			h.Calls = append(h.Calls, w.calls[i]...)
			h.Unknown = append(h.Unknown, w.unknown[i]...)
		}
		for _, c := range h.Calls {
			if c.Refused {
				report.Refused++
			} else {
				report.Admitted++
				report.Units += c.Cost
			}
		}
		report.Unanswered += len(h.Unknown)
		f := h.Check()
		report.Doubtful += f.Doubtful
		if !f.Kept() {
			report.Faults = append(report.Faults, Fault{subject.key, f})
		}
	}
}

func rng(opts Options, rounds, part int) *rand.Rand {
	return rand.New(rand.NewPCG(opts.Seed, uint64(rounds)<<32|uint64(part)))
}

type subject struct {
	key     string
	limits  []sash.Limit
	limiter *sash.Limiter
	rhythm  int64 // the window, in microseconds, that times the bursts
	most    int64 // the largest cost that fits every limit
	ahead   int64 // the server's clock minus this machine's, in microseconds
}

type stage struct {
	subjects []*subject
	workers  []*worker
	hold     time.Duration
}

const subjects = 8

func newStage(store driver.Store, opts Options, rounds int) (*stage, error) {
	s := &stage{}
	options := &sash.Options{Algorithm: opts.Algorithm, Prefix: "verify-" + crand.Text()}
	if opts.Algorithm == sash.SlidingBuckets {
		options.Resolution, s.hold = resolution, resolution
	}
	draw := rng(opts, rounds, 0)
	for i := range subjects {
		sub := &subject{key: fmt.Sprint("key-", i), limits: limits(draw, i)}
		sub.rhythm = sub.limits[0].Window.Microseconds()
		var err error
		if sub.limiter, err = sash.New(store, options, sub.limits...); err != nil {
			return nil, err
		}
		sub.most = sub.limiter.Policy().MostUnits()
		s.subjects = append(s.subjects, sub)
	}
	for i := range opts.Workers {
		s.workers = append(s.workers, &worker{
			stage: s, rng: rng(opts, rounds, i+1),
			calls: make([][]judge.Call, subjects), unknown: make([][]judge.Unknown, subjects), last: make([]time.Time, subjects),
		})
	}
	return s, nil
}

// limits draws the limits of a subject. The first two subjects are hot and have one limit, which a burst fills.
// The other subjects have up to three limits, with more units for longer windows.
func limits(draw *rand.Rand, i int) []sash.Limit {
	if i < 2 {
		return []sash.Limit{sash.Every(30+draw.Int64N(90), time.Duration(500+draw.IntN(500))*time.Millisecond)}
	}
	units, window := 1+draw.Int64N(20), time.Duration(50+draw.IntN(300))*time.Millisecond
	var out []sash.Limit
	for range 1 + draw.IntN(3) {
		out = append(out, sash.Every(units, window))
		units += 1 + draw.Int64N(20)
		window = (window * 3 / 2).Truncate(time.Microsecond) + time.Duration(draw.IntN(200_000))*time.Microsecond
	}
	return out
}

func (s *stage) run(ctx context.Context, length time.Duration) error {
	for _, sub := range s.subjects {
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		before := time.Now()
		res, err := sub.limiter.Peek(limited, sub.key)
		cancel()
		if err != nil {
			return fmt.Errorf("peeking at %s: %w", sub.key, err)
		}
		sub.ahead = res.At.UnixMicro() - before.Add(time.Since(before)/2).UnixMicro()
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var group sync.WaitGroup
	for _, w := range s.workers {
		group.Go(func() { w.work(ctx) })
	}
	group.Wait()
	for _, w := range s.workers {
		if w.back {
			return ErrClock
		}
	}
	return nil
}

// clean removes the keys. It ignores errors, because the keys also expire.
func (s *stage) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for _, sub := range s.subjects {
		_ = sub.limiter.Reset(ctx, sub.key)
	}
}

// A worker makes one call after another. It records them by subject.
type worker struct {
	stage   *stage
	rng     *rand.Rand
	calls   [][]judge.Call
	unknown [][]judge.Unknown
	last    []time.Time // the time on the server's clock at its last answer
	back    bool        // the server's clock went back
	failed  error       // the last error
}

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		i, found := w.pick()
		if !found {
			pause(ctx, time.Millisecond)
			continue
		}
		w.call(ctx, i)
	}
}

func (w *worker) pick() (int, bool) {
	now := time.Now()
	for range 8 {
		i := w.rng.IntN(subjects)
		if w.rng.IntN(3) == 0 {
			i = w.rng.IntN(2)
		}
		sub := w.stage.subjects[i]
		if at := (now.UnixMicro() + sub.ahead) % (2 * sub.rhythm); at >= sub.rhythm*4/5 { // it rests for most of every second window
			return i, true
		}
	}
	return 0, false
}

func (w *worker) call(ctx context.Context, i int) {
	sub := w.stage.subjects[i]
	cost := int64(1)
	if w.rng.IntN(3) == 0 {
		cost += w.rng.Int64N(min(sub.most, 5))
		if w.rng.IntN(10) == 0 {
			cost = 1 + w.rng.Int64N(sub.most)
		}
	}
	cost = min(cost, sub.most)
	// Calls continue after the round ends, because canceling them would make their outcome unknown.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	res, err := sub.limiter.AllowN(limited, sub.key, cost)
	cancel()
	if err != nil {
		w.failed = err
		w.unknown[i] = append(w.unknown[i], judge.Unknown{After: w.last[i], Cost: cost})
		pause(ctx, 5*time.Millisecond)
		return
	}
	w.back = w.back || res.At.Before(w.last[i])
	w.last[i] = res.At
	w.calls[i] = append(w.calls[i], judge.Call{At: res.At, Cost: cost, Wait: res.RetryAfter, Refused: !res.Allowed})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
