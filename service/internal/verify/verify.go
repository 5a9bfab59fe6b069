// Package verify asks a store for units from many workers at once, records every answer, and judges the whole
// history by the definition of a sliding limit (package history).
//
// The work comes in rounds of a few seconds. Each has keys of its own, with limits drawn from the seed: some
// hot and some not, with one window or several. A key rests through most of every second window and is then
// asked as fast as possible over the boundary and through the next window. That is what shows an algorithm
// that counts from boundaries or lets a burst follow a burst.
package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/history"
)

const (
	round       = 4 * time.Second
	callTimeout = time.Second
	// lookTimeout is longer than a client takes to connect, so that its error tells why it could not.
	lookTimeout = 3 * time.Second
	// resolution is that of sliding-buckets, which hold a unit so much longer at most.
	resolution = 10 * time.Millisecond
)

// Options for Run.
type Options struct {
	For       time.Duration // how long
	Seed      uint64        // of limits, costs and the order of keys; the timing is the machine's
	Workers   int
	Algorithm sash.Algorithm
}

// A Report is what was done and what was found.
type Report struct {
	Rounds     int
	Keys       int
	Admitted   int   // calls
	Units      int64 // of them
	Refused    int
	Doubtful   int // refusals after a call without an answer to the same key, of which less can be checked
	Unanswered int // calls without an answer
	LastError  error
	Took       time.Duration
	Faults     []Fault // empty when every promise was kept
}

// A Fault is a key whose history breaks a promise.
type Fault struct {
	Key string
	history.Findings
}

// ErrClock means that a server's clock went back, so times do not tell which calls share a window.
var ErrClock = errors.New("the server's clock went back while calls were made (or another server took over whose clock is behind): nothing can be told from the times; run it again, and see sash doctor")

// Run verifies a store. It ends after opts.For, after a round that broke a promise, or when the context does.
// The keys are removed. An error means that nothing can be told, or nothing more: the report has the rounds that
// ended before.
func Run(ctx context.Context, store sash.Store, opts Options) (Report, error) {
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
		return report, errors.New("it ended before a call was answered")
	}
	return report, nil
}

// Answered reports whether any call was answered: without one there is no verdict.
func (r *Report) Answered() bool { return r.Admitted+r.Refused > 0 }

// judge checks every key of a stage and adds to the report.
func (s *stage) judge(report *Report) {
	report.Rounds++
	report.Keys += len(s.subjects)
	for i, subject := range s.subjects {
		k := history.Key{Limits: subject.limits, Hold: s.hold}
		for _, w := range s.workers {
			k.Calls = append(k.Calls, w.calls[i]...)
			k.Unknown = append(k.Unknown, w.unknown[i]...)
		}
		for _, c := range k.Calls {
			if c.Allowed {
				report.Admitted++
				report.Units += c.Cost
			} else {
				report.Refused++
			}
		}
		report.Unanswered += len(k.Unknown)
		f := k.Check()
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

// explain names the key in an error before any call was made.
func explain(key string, err error) error { return fmt.Errorf("asking for %s: %w", key, err) }
