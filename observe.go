package sash

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// An Observer is called with each decision of the limiters that have it as [Options].Observer, for logs, metrics and
// traces. Package example.com/sash/observe has one for log/slog and one for OpenTelemetry.
//
// A decision is what a caller asks the store for, once for all its subjects: Allow, AllowN, AllowAll, AllowAny, AllowOnce,
// AllowUpTo and Do, the Reserve and Book calls, Wait, and Start, Do and Wait of a [Concurrency]. Peek, Penalize, Reward,
// Settle, Cancel, Release, Extend and Reset decide nothing. Nor does a call that is wrong, such as one with an empty
// key, or whose context has ended already: no store is asked.
type Observer interface {
	// Observe is called after the decision, before its caller gets it: a slow observer delays the caller, and those who wait
	// in line behind it, as where Wait cannot book. A panic is recovered and dropped, and the decision stands. Observe is
	// called concurrently. The context is the caller's; of a call that holds what it is charged, such as Reserve, it may go
	// on for a second after the caller's.
	Observe(ctx context.Context, d Decision)
}

// A Decision is what an [Observer] sees of one decision. It has no key: keys may hold personal data.
type Decision struct {
	// Prefix names the limiter: [Options].Prefix as keys have it, for a [Concurrency] with "in-flight" behind it.
	Prefix string
	// Limits are those of the subject, of several subjects one after the other. The observer must not change them.
	Limits []Limit
	// Cost is the units that were requested; of several subjects the most.
	Cost int64
	// Waiting says that the caller waits (Wait, WaitN and WaitDo): after a refusal it may ask again.
	Waiting bool
	// Result is the result, with Prefix in place of each key. It is zero if Err is not nil.
	Result Result
	// Err is nil, or why there is no decision: an error that is [ErrUnavailable], or the context's. Its text is that of the
	// store, or of the context's cause.
	Err error
	// Began is when the store was asked, and Duration the time until the answer. A caller who waits has not waited yet.
	Began    time.Time
	Duration time.Duration
}

// observe calls the observer with the decision on calls, which began at an instant.
func (l *Limiter) observe(ctx context.Context, began time.Time, calls []call, results []Result, err error) {
	if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCostAboveLimit) {
		return // the call was wrong
	}
	if err == nil && (len(results) == 0 || results[0].policy == nil) {
		return // the store panicked
	}
	d := Decision{
		Prefix: strings.TrimRight(l.prefix, ":#"), Limits: calls[0].policy.named, Waiting: calls[0].waits,
		Err: err, Began: began, Duration: time.Since(began),
	}
	for i := range calls {
		d.Cost = max(d.Cost, calls[i].Cost)
		if i > 0 {
			d.Limits = slices.Concat(d.Limits, calls[i].policy.named)
		}
	}
	if err == nil {
		results = slices.Clone(results) // the caller has the others
		for i := range results {
			results[i].key = d.Prefix
		}
		d.Result = join(results)
	}
	defer func() { _ = recover() }()
	l.opts.Observer.Observe(ctx, d)
}
