package judge

import (
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// A status is one limit's part of an answer. Times are microseconds from now.
type status struct {
	refused                          bool
	remaining, retry, release, reset int64
}

// A state is the charges of one subject.
type state interface {
	// see records an instant of any call: the store may have forgotten what had expired by then.
	see(now int64)
	// touch records a call under these limits: charges later than now are dated to now.
	touch(now int64, limits []sash.Limit)
	// look returns a limit's status, with or without the charges that the store may have forgotten.
	look(now, cost int64, limit sash.Limit, loose bool) status
	charge(now, cost int64, limits []sash.Limit)
	// give takes units from the oldest charges that count, and returns how many; false if a store may have forgotten some.
	give(now, units int64, limits []sash.Limit) (given int64, sure bool)
	// settle changes the units of the charge of an instant.
	settle(now, made, cost, units int64, limits []sash.Limit)
}

// An Oracle has a record of every call on a store. It is not safe for concurrent use.
type Oracle struct {
	// Ahead is how many instants ahead may have bookings of one subject, and Walk how many within a window of now a store
	// looks at: a limit that has more may count as full. They are 10,000 and 1,024 unless a test makes them small.
	Ahead, Walk int

	states map[id]state
}

type id struct {
	key       string
	algorithm sash.Algorithm
}

// New returns the oracle of an empty store.
func New() *Oracle { return &Oracle{Ahead: 10_000, Walk: 1024, states: make(map[id]state)} }

func (o *Oracle) state(req driver.Request) state {
	name := id{req.Key, req.Policy.Algorithm}
	if o.states[name] == nil {
		switch name.algorithm {
		case sash.FixedWindow, sash.SlidingCounter:
			o.states[name] = &counts{
				weigh:   name.algorithm == sash.SlidingCounter,
				tallies: make(map[string]*tally),
				spans:   make(map[string]sash.Limit),
			}
		case sash.GCRA:
			o.states[name] = &debts{certain: make(map[string]debt), possible: make(map[string]debt), paid: make(map[string]int64)}
		default:
			o.states[name] = &log{resolution: 1}
		}
	}
	if l, ok := o.states[name].(*log); ok {
		l.resolution = max(1, req.Policy.Resolution.Microseconds())
	}
	return o.states[name]
}

func (o *Oracle) see(now int64) {
	for _, s := range o.states {
		s.see(now)
	}
}

// Check compares a store's answer at an instant, for one subject or several at once, with the definition. It
// returns nil, or an error that names the field.
func (o *Oracle) Check(at time.Time, reqs []driver.Request, answers []driver.Answer) error {
	now := at.UnixMicro()
	o.see(now)
	for _, req := range reqs {
		o.state(req).touch(now, limitsOf(req.Policy))
	}
	for _, req := range reqs {
		if books(req) {
			return o.checkBooking(now, reqs, answers)
		}
	}
	allowed := true // the store's answer, where the definition leaves it open; the answers are compared below
	for i, req := range reqs {
		answer := &answers[i]
		if n := len(answer.Statuses()); n != len(req.Policy.Limits) || answer.Refusals>>n != 0 {
			return fmt.Errorf("%s: there are %d statuses and refusals %b, want %d statuses", req.Key, n, answer.Refusals, len(req.Policy.Limits))
		}
		allowed = allowed && answer.Allowed()
		for j, limit := range limitsOf(req.Policy) {
			least, most := o.look(now, req, req.Cost, limit)
			refused := answer.Refusals&(1<<j) != 0
			blind := refused == (req.Cost > 0) && o.far(now, req, limit) // it counts as full, and as no more than full
			if refused != least.refused && refused != most.refused && !blind {
				return fmt.Errorf("%s, limit %v, cost %d: refused is %v, want %v (%d to %d units were left)",
					req.Key, limit, req.Cost, refused, most.refused, most.remaining, least.remaining)
			}
		}
	}
	waits, err := o.wait(now, reqs, answers)
	if err != nil {
		return err
	}
	for i, req := range reqs {
		cost := req.Cost
		if cost > 0 && (allowed || req.Policy.CountRefused) {
			o.state(req).charge(now, cost, limitsOf(req.Policy))
			if allowed {
				cost = 0
			}
		}
		if err := o.compare(now, now, req, cost, &answers[i], waits); err != nil {
			return fmt.Errorf("%s, cost %d, allowed %v: %w", req.Key, req.Cost, answers[i].Allowed(), err)
		}
	}
	return nil
}

func (o *Oracle) look(now int64, req driver.Request, cost int64, limit sash.Limit) (least, most status) {
	s := o.state(req)
	return s.look(now, cost, limit, false), s.look(now, cost, limit, true)
}

// compare checks the fields of one subject's answer, which describe the state after the call, as of an instant. That is
// now, or when a booking starts. If waits is set, wait has checked the Retry of limits that refuse.
func (o *Oracle) compare(now, at int64, req driver.Request, cost int64, answer *driver.Answer, waits bool) error {
	if answer.At != at || answer.Delay != at-now {
		return fmt.Errorf("At is %d and Delay %d, want %d and %d", answer.At, answer.Delay, at, at-now)
	}
	for i, limit := range limitsOf(req.Policy) {
		got := answer.Statuses()[i]
		least, most := o.look(at, req, cost, limit)
		if at == now && o.far(now, req, limit) {
			most.remaining, most.refused = 0, true
		}
		for _, s := range []*status{&least, &most} {
			s.release, s.reset = s.release+at-now, s.reset+at-now
		}
		if waits && (least.refused || most.refused) {
			least.retry, most.retry = got.Retry, got.Retry
		}
		for _, f := range [...]struct {
			name      string
			got, a, b int64
		}{
			{"Remaining", got.Remaining, least.remaining, most.remaining},
			{"Retry", got.Retry, least.retry, most.retry},
			{"Release", got.Release, least.release, most.release},
			{"Reset", got.Reset, least.reset, most.reset},
		} {
			if f.name == "Release" && least != most {
				f.a, f.b = 0, max(least.reset, most.reset) // grows with some charges and shrinks with others
			}
			if lo, hi := min(f.a, f.b), max(f.a, f.b); f.got < lo || f.got > hi {
				return fmt.Errorf("limit %v: %s is %d, want %s", limit, f.name, f.got, between(lo, hi))
			}
		}
	}
	return nil
}

// limitsOf returns a policy's limits in the form that the definition uses.
func limitsOf(p *driver.Policy) []sash.Limit {
	limits := make([]sash.Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = sash.Limit{Units: l.Units, Window: time.Duration(l.Window) * time.Microsecond, Period: l.Period, Zone: l.Zone}
	}
	return limits
}

func between(lo, hi int64) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d to %d", lo, hi)
}

// Settle records the first settlement of a charge.
func (o *Oracle) Settle(at time.Time, set driver.Settlement) {
	o.see(at.UnixMicro())
	s := o.state(set.Request)
	s.settle(at.UnixMicro(), set.At, set.Request.Cost, set.Units, limitsOf(set.Request.Policy))
}

// Reset records the reset of a subject.
func (o *Oracle) Reset(key string, algorithm sash.Algorithm) { delete(o.states, id{key, algorithm}) }
