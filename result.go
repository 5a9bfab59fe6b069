package sash

import (
	"time"

	"example.com/sash/internal/window"
)

// A Source says where a result came from.
type Source uint8

// Sources of a result.
const (
	FromStore  Source = iota // the store decided
	FromCache                // what the store had said before still holds
	FromLease                // this process decided, over units that the store had leased to it
	FromLocal                // the store is unavailable, and this process decided over its share
	FromPolicy               // the store is unavailable, and nothing was counted
)

var sourceNames = [...]string{FromStore: "store", FromCache: "cache", FromLease: "lease", FromLocal: "local", FromPolicy: "policy"}

// String returns "store", "cache", "lease", "local" or "policy".
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}

// A Result is the answer to one call. It is a value: it can be kept and shared.
type Result struct {
	// Allowed says whether the call was admitted, and its cost charged to every limit.
	Allowed bool
	// Source says where the answer came from.
	Source Source
	// Firm says of a refusal that nobody can make room before RetryAfter has passed: no charge that counts
	// may still be settled. Only a reset can, or a higher limit. A store that does not know says false.
	Firm     bool
	refusals uint8 // a bit for each of MaxLimits
	// Cause is nil when the store decided, now or before. Otherwise it is why it did not: an error that is
	// ErrUnavailable.
	Cause error
	// Remaining is how many units are left after this call: the fewest over all limits, never negative.
	Remaining int64
	// RetryAfter is zero for a call that was admitted. For a refusal it is the shortest time after
	// which the same call is admitted if nobody else comes: exact to the microsecond on the store's
	// clock, over all limits.
	RetryAfter time.Duration
	// ResetAfter is the time until every unit of every limit is free, if nobody else comes.
	ResetAfter time.Duration
	// At is the store's clock when it decided.
	At time.Time

	// A Result is copied three or four times in a call. So what is rare is behind a pointer, and the size is a
	// multiple of 16 bytes: that of any other is copied with stores that overlap, and the next copy waits for them.
	key    string
	policy *Policy
	wait   time.Duration // the longest RetryAfter of its limits, also where another subject refused
	few    [2]window.Status
	rare   *rare
}

// What is rare in a Result. It is not changed once made.
type rare struct {
	statuses []window.Status // where there are more limits than few holds
	subjects []Result        // of a decision over several subjects
}

// many returns a copy of the statuses of more limits than few holds, in one allocation.
func many(statuses []window.Status) *rare {
	var r struct {
		rare
		room [MaxLimits]window.Status
	}
	r.statuses = append(r.room[:0], statuses...)
	return &r.rare
}

// A LimitResult is one limit's part of a Result.
type LimitResult struct {
	// Key is the subject that the limit is on.
	Key string
	// Limit is the limit, with its name filled in.
	Limit Limit
	// Refused says whether this limit had no room for the call.
	Refused bool
	// Remaining is how many of this limit's units are left, never negative.
	Remaining int64
	// RetryAfter is zero, or the time until this limit has room for the call.
	RetryAfter time.Duration
	// ReleaseAfter is the time until Remaining grows, if nobody else comes; zero when nothing is in use.
	ReleaseAfter time.Duration
	// ResetAfter is the time until every unit of this limit is free; zero when they are.
	ResetAfter time.Duration
}

// NewResult makes the result of one decision, for stores. At is the store's clock in microseconds
// since the Unix epoch; bit i of refusals is set when limit i refused; statuses has one element a limit
// and is copied.
func NewResult(req Request, at int64, refusals uint64, statuses []window.Status) (r Result) {
	r.Decided(req, at, refusals, statuses)
	return r
}

// Decided is NewResult without a copy: it fills a zero Result where that is wanted. Firm may be set already.
func (r *Result) Decided(req Request, at int64, refusals uint64, statuses []window.Status) {
	r.Allowed = refusals == 0
	r.At = time.UnixMicro(at)
	r.key, r.policy, r.refusals = req.Key, req.Policy, uint8(refusals)
	if copy(r.few[:], statuses) < len(statuses) {
		r.rare = many(statuses)
	}
	remaining, reset, retry := int64(MaxUnits), int64(0), int64(0)
	for i := range statuses {
		s := &statuses[i]
		remaining = min(remaining, s.Remaining)
		reset = max(reset, s.Reset)
		retry = max(retry, s.Retry)
	}
	r.Remaining, r.ResetAfter, r.wait = remaining, micros(reset), micros(retry)
	if refusals != 0 {
		r.RetryAfter = r.wait
	}
}

// Limits returns each limit's part of the result: in the limiter's order, subject by subject.
func (r Result) Limits() []LimitResult {
	if r.rare != nil && r.rare.subjects != nil {
		var all []LimitResult
		for _, s := range r.rare.subjects {
			all = append(all, s.Limits()...)
		}
		return all
	}
	if r.policy == nil {
		return nil
	}
	statuses := r.statuses()
	out := make([]LimitResult, len(r.policy.limits))
	for i, l := range r.policy.limits {
		s := statuses[i]
		l.Name = l.label()
		out[i] = LimitResult{
			Key:          r.key,
			Limit:        l,
			Refused:      r.refusals&(1<<i) != 0,
			Remaining:    s.Remaining,
			RetryAfter:   micros(s.Retry),
			ReleaseAfter: micros(s.Release),
			ResetAfter:   micros(s.Reset),
		}
	}
	return out
}

// Refusals returns a bit for each limit of a single subject that refused, for stores.
func (r Result) Refusals() uint64 { return uint64(r.refusals) }

// statuses returns what each limit of a single subject says. The caller must not change them.
func (r *Result) statuses() []window.Status {
	if r.rare != nil {
		return r.rare.statuses
	}
	return r.few[:]
}

// RefusedBy returns the limit that refused: of several, the one that takes longest to have room. It
// returns false for a call that was admitted.
func (r Result) RefusedBy() (LimitResult, bool) {
	var by LimitResult
	found := false
	if r.Allowed {
		return by, false
	}
	for _, l := range r.Limits() {
		if l.Refused && (!found || l.RetryAfter > by.RetryAfter) {
			by, found = l, true
		}
	}
	return by, found
}

// join makes one result of a decision over one or several subjects.
func join(results []Result) Result {
	if len(results) == 1 {
		return results[0]
	}
	all := Result{Allowed: true, Remaining: MaxUnits, rare: &rare{subjects: results}}
	for i := range results {
		r := &results[i]
		all.Allowed = all.Allowed && r.Allowed
		all.Remaining = min(all.Remaining, r.Remaining)
		all.wait = max(all.wait, r.wait)
		all.ResetAfter = max(all.ResetAfter, r.ResetAfter)
		if r.At.After(all.At) {
			all.At = r.At
		}
		if r.Source > all.Source {
			all.Source, all.Cause = r.Source, r.Cause
		}
	}
	if !all.Allowed {
		all.RetryAfter = all.wait
	}
	return all
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
