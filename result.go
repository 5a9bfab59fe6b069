package sash

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"example.com/sash/driver"
)

// A Source says where a result came from.
type Source = driver.Source

// Sources of a result.
const (
	FromStore  = driver.FromStore  // the store decided
	FromCache  = driver.FromCache  // an earlier refusal of the store still holds
	FromLease  = driver.FromLease  // this process decided, from units that the store had leased to it
	FromOwn    = driver.FromOwn    // this region decided within its own share: see package lease
	FromLocal  = driver.FromLocal  // the store is unavailable, and this process decided within its share
	FromPolicy = driver.FromPolicy // the store is unavailable, and nothing was counted
)

// A Result is the outcome of one call. It is a value: it can be kept and shared.
type Result struct {
	// Allowed says whether the call was admitted, and its cost charged to every limit.
	Allowed bool
	// Source says where the answer came from.
	Source   Source
	refusals uint8 // a bit for each of driver.MaxLimits
	// Blocked says that the call was refused because its subject was refused too often before: see [Block].
	Blocked bool
	// Cause is nil if the store decided, now or before. Otherwise it is why the store did not: an error that is ErrUnavailable.
	Cause error
	// Remaining is how many units are left after this call: the fewest over all limits, never negative.
	Remaining int64
	// RetryAfter is zero for a call that was admitted. For a refusal it is the shortest time after which the same
	// call is admitted if no other call comes: exact to the microsecond on the store's clock, over all limits. While
	// bookings lie ahead it is the time until the call fits behind them, an upper bound for a call that is not booked.
	RetryAfter time.Duration
	// ResetAfter is the time until every unit of every limit is free, if no other call comes.
	ResetAfter time.Duration
	// Delay is zero unless the call was booked: the time from the decision until it starts, exact to the microsecond on
	// the store's clock. Remaining is then as of its start, and all other times are from the decision.
	Delay time.Duration
	// Charged is how many units AllowUpTo charged, or Reward gave back. It is zero for every other call.
	Charged int64
	// At is the store's clock when it decided, or the instant at which a booking starts. Subjects in different places are
	// charged one after the other. At is then the time of the last charge, and the results of [Reservation].Parts have their own.
	At time.Time

	// A Result is copied three or four times per call. So rare parts are behind a pointer, and the size is a multiple of 16 bytes.
	key      string
	policy   *policy
	few      [2]driver.Status // the limits' parts, where there are one or two
	many     []driver.Status  // where there are more
	subjects *[]Result        // of a decision over several subjects
}

// A LimitResult is one limit's part of a Result.
type LimitResult struct {
	// Key is the subject that the limit applies to.
	Key string
	// Limit is the limit, with its name filled in.
	Limit Limit
	// Algorithm is how its window is counted.
	Algorithm Algorithm
	// Refused says whether this limit had no room for the call.
	Refused bool
	// Blocked says that it refused because its subject was refused too often before: see [Block].
	Blocked bool
	// Remaining is how many of this limit's units are left, never negative.
	Remaining int64
	// RetryAfter is zero, or the time until this limit has room for the call.
	RetryAfter time.Duration
	// ReleaseAfter is the time until Remaining grows, if no other call comes; zero when nothing is in use.
	ReleaseAfter time.Duration
	// ResetAfter is the time until every unit of this limit is free; zero when all are.
	ResetAfter time.Duration
}

// read makes r the result of a store's answer for a key under a policy.
func (r *Result) read(key string, p *policy, a *driver.Answer) {
	r.Allowed, r.Source, r.refusals = a.Refusals == 0, a.Source, uint8(a.Refusals)
	r.Cause, r.At = a.Cause, time.UnixMicro(a.At)
	r.Charged, r.Blocked = a.Charged, a.Blocked
	r.Delay = micros(a.Delay)
	r.key, r.policy = key, p
	statuses := a.Statuses()
	if copy(r.few[:], statuses) < len(statuses) {
		r.many = statuses
	}
	remaining, retry, reset := int64(MaxUnits), int64(0), int64(0)
	for i := range statuses {
		s := &statuses[i]
		remaining, retry, reset = min(remaining, s.Remaining), max(retry, s.Retry), max(reset, s.Reset)
	}
	if r.Remaining, r.ResetAfter = remaining, micros(reset); !r.Allowed {
		r.RetryAfter = micros(retry)
	}
}

// limitStatuses returns the status of each limit of a result that has a single subject.
func (r *Result) limitStatuses() []driver.Status {
	if r.many != nil {
		return r.many
	}
	return r.few[:min(len(r.policy.Limits), len(r.few))]
}

// Limits returns each limit's part of the result, in the limiter's order, subject by subject.
func (r Result) Limits() []LimitResult {
	if r.subjects != nil {
		var all []LimitResult
		for i := range *r.subjects {
			all = (*r.subjects)[i].appendLimits(all)
		}
		return all
	}
	if r.policy == nil {
		return nil
	}
	return r.appendLimits(make([]LimitResult, 0, len(r.policy.Limits)))
}

// appendLimits appends the parts of a result that has a single subject.
func (r *Result) appendLimits(out []LimitResult) []LimitResult {
	statuses := r.limitStatuses()
	for i := range statuses {
		s, l := &statuses[i], r.policy.named[i]
		l.Name = r.policy.labels[i]
		out = append(out, LimitResult{
			Key:          r.key,
			Limit:        l,
			Algorithm:    r.policy.Algorithm,
			Refused:      r.refusals&(1<<i) != 0,
			Blocked:      r.Blocked,
			Remaining:    s.Remaining,
			RetryAfter:   micros(s.Retry),
			ReleaseAfter: micros(s.Release),
			ResetAfter:   micros(s.Reset),
		})
	}
	return out
}

// RefusedBy returns the limit that refused the call (of several, the one with the longest RetryAfter), or false if the call was admitted.
func (r Result) RefusedBy() (by LimitResult, refused bool) {
	if r.Allowed {
		return by, false
	}
	for _, l := range r.Limits() {
		if l.Refused && (!refused || l.RetryAfter > by.RetryAfter) {
			by, refused = l, true
		}
	}
	return by, refused
}

// combine returns the result of the calls of one decision. There is at least one.
func combine(calls []call) Result {
	if len(calls) == 1 {
		return calls[0].result
	}
	subjects := make([]Result, len(calls))
	all := Result{Allowed: true, Remaining: MaxUnits, subjects: &subjects}
	for i := range calls {
		r := &calls[i].result
		subjects[i] = *r
		all.Allowed = all.Allowed && r.Allowed
		all.Blocked = all.Blocked || r.Blocked
		all.Remaining = min(all.Remaining, r.Remaining)
		all.ResetAfter = max(all.ResetAfter, r.ResetAfter)
		all.Delay = max(all.Delay, r.Delay)
		if r.At.After(all.At) {
			all.At = r.At
		}
		if r.Source > all.Source {
			all.Source, all.Cause = r.Source, r.Cause
		}
		for _, s := range r.limitStatuses() { // also of those that had room: where refused calls are charged, they may have to wait too
			all.RetryAfter = max(all.RetryAfter, micros(s.Retry))
		}
	}
	if all.Allowed {
		all.RetryAfter = 0
	}
	return all
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// An Observer is called with each decision of the limiters that have it as [Options].Observer, for logs, metrics and
// traces. Package example.com/sash/observe has one for log/slog and one for OpenTelemetry.
//
// A decision is the store's answer to a call, one for all its subjects. Peek, Penalize, Reward, Reset and settlements decide nothing.
// Neither does an invalid call, such as one with an empty key, or a call whose context has already ended.
type Observer interface {
	// Observe is called after the decision, before the caller gets it. A slow observer delays the caller and the callers who wait behind. A
	// panic is dropped, and the decision stands. Observe is called concurrently. The context is the caller's, or one that ends a second later.
	Observe(ctx context.Context, d Decision)
}

// A Decision is what an [Observer] sees of one decision. It has no key: keys may hold personal data.
type Decision struct {
	// Prefix names the limiter: it is [Options].Prefix as in keys, followed by "in-flight" for a [Concurrency].
	Prefix string
	// Limits are the limits of each subject, one subject after the other. The observer must not change them.
	Limits []Limit
	// Cost is the units that were requested, the most of any subject.
	Cost int64
	// Waiting says that the caller waits (Wait, WaitN and WaitDo): after a refusal it may ask again.
	Waiting bool
	// Result is the result, with Prefix in place of each key. It is zero if Err is not nil.
	Result Result
	// Err is nil, or why there is no decision: an [ErrUnavailable], or the context's error with the text of the store or of the cause.
	Err error
	// Began is when the limiter called the store, and Duration the time until the answer. It does not include waiting for a booking.
	Began    time.Time
	Duration time.Duration
}

// observe calls the observer with the decision on calls, which began at an instant.
func (l *Limiter) observe(ctx context.Context, began time.Time, mode driver.Mode, calls, decided []call, err error) {
	if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCostAboveLimit) || err == nil && len(decided) == 0 {
		return // the call was wrong, or the store panicked
	}
	if mode == driver.Any {
		calls = calls[:1]
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
		decided = slices.Clone(decided) // the caller has the others
		for i := range decided {
			decided[i].result.key = d.Prefix
		}
		d.Result = combine(decided)
	}
	defer func() { _ = recover() }()
	l.opts.Observer.Observe(ctx, d)
}
