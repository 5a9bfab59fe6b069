package sash

import (
	"slices"
	"time"

	"example.com/sash/internal/window"
)

// Part returns the answer to one of several calls of a subject that were decided together: req, whose
// policy is equal to the one decided on. The units of the calls that come after it, if they were charged,
// are not used yet when it is answered. It is for stores.
func (r Result) Part(req Request, later int64) Result {
	r.policy = req.Policy
	if later == 0 {
		return r
	}
	r.Remaining += later
	statuses := r.own()
	for i := range statuses {
		statuses[i].Remaining += later
	}
	return r
}

// After returns the answer to one subject as it is d later if nobody else comes: every time in it is
// shorter by d, and not below zero, and At is later. It is for stores that answer from what they were told.
func (r Result) After(d time.Duration) Result {
	if d <= 0 {
		return r
	}
	less := d.Microseconds()
	r.At = r.At.Add(micros(less))
	r.RetryAfter = max(0, r.RetryAfter-micros(less))
	r.ResetAfter = max(0, r.ResetAfter-micros(less))
	r.wait = max(0, r.wait-micros(less))
	statuses := r.own()
	for i := range statuses {
		s := &statuses[i]
		s.Retry, s.Release, s.Reset = max(0, s.Retry-less), max(0, s.Release-less), max(0, s.Reset-less)
	}
	return r
}

// own returns the statuses, which the result then shares with no other.
func (r *Result) own() []window.Status {
	if r.rare != nil {
		r.rare = &rare{statuses: slices.Clone(r.rare.statuses)}
	}
	return r.statuses()
}
