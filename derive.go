package sash

import (
	"time"

	"example.com/sash/internal/window"
)

// Part returns the answer to one of several calls of a subject that were decided together: req, whose
// policy is equal to the one decided on. The units of the calls that come after it, if they were charged,
// are not used yet when it is answered. It is for stores.
func (r *Result) Part(req Request, later int64) (part Result) {
	part = *r
	part.policy = req.Policy
	if later == 0 {
		return part
	}
	part.Remaining += later
	statuses := part.own()
	for i := range statuses {
		statuses[i].Remaining += later
	}
	return part
}

// After returns the answer to one subject as it is d later if nobody else comes: every time in it is
// shorter by d, and not below zero, and At is later. It is for stores that answer from what they were told.
func (r *Result) After(d time.Duration) (later Result) {
	later = *r
	if d <= 0 {
		return later
	}
	less := d.Microseconds()
	later.At = r.At.Add(micros(less))
	later.RetryAfter = max(0, r.RetryAfter-micros(less))
	later.ResetAfter = max(0, r.ResetAfter-micros(less))
	later.wait = max(0, r.wait-micros(less))
	statuses := later.own()
	for i := range statuses {
		s := &statuses[i]
		s.Retry, s.Release, s.Reset = max(0, s.Retry-less), max(0, s.Release-less), max(0, s.Reset-less)
	}
	return later
}

// own returns the statuses, which the result then shares with no other.
func (r *Result) own() []window.Status {
	if r.rare != nil {
		r.rare = many(r.rare.statuses)
	}
	return r.statuses()
}
