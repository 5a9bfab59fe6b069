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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A Report is the result of a run.
type Report struct {
	Tally
	Rounds    int
	Doubtful  int // refusals after a call on the same key without an answer, of which less can be checked
	LastError error
	Took      time.Duration
}

// A Tally is the calls that were judged, and what was found.
type Tally struct {
	Keys       int     `json:"keys"`
	Admitted   int     `json:"admitted"` // calls
	Units      int64   `json:"units"`    // of them
	Refused    int     `json:"refused"`
	Unanswered int     `json:"unanswered"` // calls without an answer
	Faults     []Fault `json:"-"`          // a row for each key with a violation
}

// A Fault is a key whose history violates a guarantee.
type Fault struct {
	Key string
	Findings
}

// What the judge of histories finds.
type (
	// Findings are all that it found.
	Findings = judge.Findings
	// A Window held more than its limit.
	Window = judge.Window
	// A Refusal had room.
	Refusal = judge.Refusal
)

// ErrClock means that a server's clock went back, so the times do not show which calls share a window.
var ErrClock = errors.New("the server's clock went back during the run (or another server took over whose clock is behind): the times prove nothing; run it again, and see sash doctor")

// Run verifies a store. It ends after opts.For, after a round with a violation, or when the context ends. It removes its
// keys. After an error the report has the rounds that ended before it.
func Run(ctx context.Context, store driver.Store, opts Options) (Report, error) {
	var report Report
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
	}
	if !report.Answered() {
		if report.LastError != nil {
			return report, report.LastError
		}
		return report, errors.New("the run ended before any call got an answer")
	}
	return report, nil
}

// Answered reports whether any call got an answer. Without one there is no verdict.
func (r *Report) Answered() bool { return r.Admitted+r.Refused > 0 }

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
			report.Faults = append(report.Faults, Fault{Key: subject.key, Findings: f})
		}
	}
	for _, w := range s.workers {
		if w.failed != nil {
			report.LastError = w.failed
		}
	}
}

// rng returns the random numbers of one part of a round.
func rng(opts Options, rounds, part int) *rand.Rand {
	return rand.New(rand.NewPCG(opts.Seed, uint64(rounds)<<32|uint64(part)))
}

// explain names the key in the error of a first call.
func explain(key string, err error) error { return fmt.Errorf("peeking at %s: %w", key, err) }
