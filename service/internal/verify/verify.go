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
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/judge"
)

const (
	round       = 4 * time.Second
	callTimeout = time.Second
	// lookTimeout is longer than a client takes to connect, so that its error has the reason of a failure.
	lookTimeout = 3 * time.Second
	// resolution is that of sliding-buckets, which hold a unit at most that much longer.
	resolution = 10 * time.Millisecond
)

// Options for Run.
type Options struct {
	For       time.Duration // the duration of the run
	Seed      uint64        // determines limits, costs and the order of keys, but not the timing
	Workers   int
	Algorithm sash.Algorithm
}

// A Report is what was judged, and what was found.
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

// Calls returns how many calls were made.
func (r *Report) Calls() int { return r.Admitted + r.Refused + r.Unanswered }

// A Fault is a key whose history violates a guarantee.
type Fault struct {
	Key string
	judge.Findings
}

// sortFaults puts the fault with the fullest window first.
func (r *Report) sortFaults() {
	slices.SortStableFunc(r.Faults, func(a, b Fault) int { return cmp.Compare(excess(b.Over), excess(a.Over)) })
}

// excess returns how many units a window held above its limit.
func excess(w *judge.Window) int64 {
	if w == nil {
		return 0
	}
	return w.Units - w.Limit.Units
}

// ErrClock means that a server's clock went back, so the times do not show which calls share a window.
var ErrClock = errors.New("the server's clock went back during the run (or another server took over whose clock is behind): the times prove nothing; run it again, and see sash doctor")

// Run verifies a store. It ends after opts.For, after a round with a violation, or when the context ends. It removes its
// keys. After an error the report has the rounds that ended before it.
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

// judge checks every key of a stage and adds to the report.
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

// rng returns the random numbers of one part of a round.
func rng(opts Options, rounds, part int) *rand.Rand {
	return rand.New(rand.NewPCG(opts.Seed, uint64(rounds)<<32|uint64(part)))
}
