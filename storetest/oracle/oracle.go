package oracle

import (
	"fmt"
	"time"

	"example.com/sash"
)

// A status is what one limit says to a call. Times are microseconds from now.
type status struct {
	refused                          bool
	remaining, retry, release, reset int64
}

// A state is what one subject was charged.
type state interface {
	// see tells of an instant at which the store was asked anything: what had expired may be forgotten.
	see(now int64)
	// touch tells of a call under these limits: charges later than now are dated to now.
	touch(now int64, limits []sash.Limit)
	// look returns a limit's status, with or without the charges that may have been forgotten.
	look(now, cost int64, limit sash.Limit, loose bool) status
	charge(now, cost int64, limits []sash.Limit)
	// settle makes the charge that was made at an instant worth other units.
	settle(now, made, cost, units int64, limits []sash.Limit)
}

// An Oracle knows every call that was made on a store. It is not safe for concurrent use.
type Oracle struct {
	states map[id]state
}

type id struct {
	key       string
	algorithm sash.Algorithm
}

// New returns the oracle of an empty store.
func New() *Oracle { return &Oracle{states: make(map[id]state)} }

func (o *Oracle) state(req sash.Request) state {
	name := id{req.Key, req.Policy.Algorithm()}
	if o.states[name] == nil {
		switch name.algorithm {
		case sash.FixedWindow, sash.SlidingCounter:
			o.states[name] = &counts{
				weigh:   name.algorithm == sash.SlidingCounter,
				tallies: make(map[string]*tally),
				spans:   make(map[string]sash.Limit),
			}
		case sash.GCRA:
			o.states[name] = &debts{certain: make(map[string]debt), possible: make(map[string]debt)}
		default:
			o.states[name] = &log{resolution: 1}
		}
	}
	if l, ok := o.states[name].(*log); ok {
		l.resolution = max(1, req.Policy.Resolution().Microseconds())
	}
	return o.states[name]
}

func (o *Oracle) see(now int64) {
	for _, s := range o.states {
		s.see(now)
	}
}

// Check compares what a store answered at an instant, for one subject or several at once, with the
// definition. It returns nil, or an error that names the field.
func (o *Oracle) Check(at time.Time, reqs []sash.Request, results []sash.Result) error {
	now := at.UnixMicro()
	o.see(now)
	for _, req := range reqs {
		o.state(req).touch(now, req.Policy.Limits())
	}
	allowed := true // as answered, where the definition leaves it open; the answers are compared below
	for i, req := range reqs {
		allowed = allowed && results[i].Allowed
		for j, limit := range req.Policy.Limits() {
			least, most := o.look(now, req, req.Cost, limit)
			got := results[i].Limits()[j]
			if got.Refused != least.refused && got.Refused != most.refused {
				return fmt.Errorf("%s, limit %v, cost %d: Refused is %v, want %v (%d to %d units were left)",
					req.Key, limit, req.Cost, got.Refused, most.refused, most.remaining, least.remaining)
			}
		}
	}
	for i, req := range reqs {
		cost := req.Cost
		if cost > 0 && (allowed || req.Policy.CountRefused()) {
			o.state(req).charge(now, cost, req.Policy.Limits())
			if allowed {
				cost = 0
			}
		}
		if err := o.compare(now, req, cost, results[i]); err != nil {
			return fmt.Errorf("%s, cost %d, allowed %v: %w", req.Key, req.Cost, results[i].Allowed, err)
		}
	}
	return nil
}

func (o *Oracle) look(now int64, req sash.Request, cost int64, limit sash.Limit) (least, most status) {
	s := o.state(req)
	return s.look(now, cost, limit, false), s.look(now, cost, limit, true)
}

// compare checks the fields of one subject's result, which tell of the state after the call.
func (o *Oracle) compare(now int64, req sash.Request, cost int64, res sash.Result) error {
	if res.At.UnixMicro() != now {
		return fmt.Errorf("At is %d, want %d", res.At.UnixMicro(), now)
	}
	limits := res.Limits()
	if len(limits) != len(req.Policy.Limits()) {
		return fmt.Errorf("there are %d limits in the result, want %d", len(limits), len(req.Policy.Limits()))
	}
	var retry, reset time.Duration
	remaining, refused := int64(sash.MaxUnits), false
	for i, limit := range req.Policy.Limits() {
		got := limits[i]
		least, most := o.look(now, req, cost, limit)
		for _, f := range [...]struct {
			name      string
			got, a, b int64
		}{
			{"Remaining", got.Remaining, least.remaining, most.remaining},
			{"RetryAfter", got.RetryAfter.Microseconds(), least.retry, most.retry},
			{"ReleaseAfter", got.ReleaseAfter.Microseconds(), least.release, most.release},
			{"ResetAfter", got.ResetAfter.Microseconds(), least.reset, most.reset},
		} {
			if f.name == "ReleaseAfter" && least != most {
				f.a, f.b = 0, max(least.reset, most.reset) // grows with some charges and shrinks with others
			}
			if lo, hi := min(f.a, f.b), max(f.a, f.b); f.got < lo || f.got > hi {
				return fmt.Errorf("limit %v: %s is %d, want %s", limit, f.name, f.got, between(lo, hi))
			}
		}
		name := limit.Name
		if name == "" {
			name = limit.String()
		}
		if got.Key != req.Key || got.Limit.Name != name || got.Limit.Units != limit.Units {
			return fmt.Errorf("limit %v: it is called %q on the key %q", limit, got.Limit.Name, got.Key)
		}
		remaining, refused = min(remaining, got.Remaining), refused || got.Refused
		retry, reset = max(retry, got.RetryAfter), max(reset, got.ResetAfter)
	}
	if !refused {
		retry = 0
	}
	switch {
	case res.Allowed == refused:
		return fmt.Errorf("Allowed is %v, and a limit refused is %v", res.Allowed, refused)
	case res.Remaining != remaining:
		return fmt.Errorf("the result's Remaining is %d, want the fewest of its limits, %d", res.Remaining, remaining)
	case res.RetryAfter != retry:
		return fmt.Errorf("the result's RetryAfter is %v, want the longest of its limits, %v", res.RetryAfter, retry)
	case res.ResetAfter != reset:
		return fmt.Errorf("the result's ResetAfter is %v, want the longest of its limits, %v", res.ResetAfter, reset)
	}
	by, ok := res.RefusedBy()
	for _, l := range limits {
		if ok && l.Refused && l.RetryAfter > by.RetryAfter {
			return fmt.Errorf("RefusedBy is %s, but %s takes longer", by.Limit.Name, l.Limit.Name)
		}
	}
	if ok == res.Allowed || ok && !by.Refused {
		return fmt.Errorf("RefusedBy is %v, with Allowed %v", ok, res.Allowed)
	}
	return nil
}

func between(lo, hi int64) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}

// Settle tells of a charge that was settled for the first time.
func (o *Oracle) Settle(at time.Time, set sash.Settlement) {
	o.see(at.UnixMicro())
	s := o.state(set.Request)
	s.settle(at.UnixMicro(), set.Result.At.UnixMicro(), set.Request.Cost, set.Units, set.Request.Policy.Limits())
}

// Reset tells of a subject that was forgotten.
func (o *Oracle) Reset(key string, algorithm sash.Algorithm) { delete(o.states, id{key, algorithm}) }
