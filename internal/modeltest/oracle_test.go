package modeltest

import (
	"fmt"
	"slices"
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

// An oracle computes the right answer of a store by brute force from the definitions: it keeps every charge in a plain list,
// sums that list for the units in use, and finds a time to wait by trying. It shares nothing with the algorithms of the stores,
// so that the two can only agree by being right.
//
// A store may forget a charge that cannot count any more: one older than the longest window that its key was charged under, or
// one followed by as many units as the largest limit that its key was charged under. When the clock goes back, or a later call
// has a longer window or a larger limit, such a charge would count again by the definition. The oracle then accepts any answer
// between those with and without it. In all other cases there is one right answer.
type oracle struct {
	states map[id]state
	blocks map[id]*block
	left   int64 // of the block of the subject whose answer is compared
	shown  int64 // the latest time that the clock has shown: one that trembles may stand there
	back   int64 // what it showed when it went back last by more: charges up to then may have a new date
}

type id struct {
	key       string
	algorithm sash.Algorithm
}

// newOracle returns the oracle of an empty store.
func newOracle() *oracle { return &oracle{states: make(map[id]state), blocks: make(map[id]*block)} }

func (o *oracle) state(req driver.Request) state {
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

// now returns when a store decided whose clock shows a time. A clock that trembles, and is a millisecond or less behind the last
// charge of a log, stands there; it may stand where it was last.
func (o *oracle) now(at time.Time, reqs []driver.Request, answer *driver.Answer) (int64, error) {
	now, decided := at.UnixMicro(), answer.At-answer.Delay
	if now < decided && decided <= min(o.shown+1, now+stepBack+1) { // or a microsecond later, after a reset
		now = decided
	}
	for _, req := range reqs {
		if l, ok := o.state(req).(*log); ok && l.stands(now, o.back) {
			return 0, fmt.Errorf("%s: a charge is later than a decision of %d", req.Key, now)
		}
	}
	return now, nil
}

func (o *oracle) see(now int64) {
	o.shown = max(o.shown, now)
	for _, s := range o.states {
		s.see(now)
	}
}

// Check compares a store's answer at an instant, for one subject or several at once, with the definition. It
// returns nil, or an error that names the field.
func (o *oracle) Check(at time.Time, reqs []driver.Request, answers []driver.Answer) error {
	now, err := o.now(at, reqs, &answers[0])
	if err != nil {
		return err
	}
	o.see(now)
	for _, req := range reqs {
		o.state(req).touch(now, limitsOf(req.Policy))
	}
	for _, req := range reqs {
		switch {
		case req.Policy.Block.Refusals > 0:
			return o.checkBlock(now, req, &answers[0])
		case books(req):
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

func (o *oracle) look(now int64, req driver.Request, cost int64, limit sash.Limit) (least, most status) {
	s := o.state(req)
	return s.look(now, cost, limit, false), s.look(now, cost, limit, true)
}

// compare checks the fields of one subject's answer, which describe the state after the call, as of an instant. That is
// now, or when a booking starts. If waits is set, wait has checked the Retry of limits that refuse.
func (o *oracle) compare(now, at int64, req driver.Request, cost int64, answer *driver.Answer, waits bool) error {
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
			s.bar(o.left)
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
func (o *oracle) Settle(at time.Time, set driver.Settlement) {
	o.see(at.UnixMicro())
	s := o.state(set.Request)
	s.settle(at.UnixMicro(), set.At, set.Request.Cost, set.Units, limitsOf(set.Request.Policy))
}

// Reset records the reset of a subject.
func (o *oracle) Reset(key string, algorithm sash.Algorithm) {
	delete(o.states, id{key, algorithm})
	delete(o.blocks, id{key, algorithm})
}

// A block is the refusals of a subject that count, and when the last block that they began ends.
type block struct {
	refused []int64
	ends    int64
}

func (o *oracle) block(req driver.Request) *block {
	name := id{req.Key, req.Policy.Algorithm}
	if o.blocks[name] == nil {
		o.blocks[name] = new(block)
	}
	return o.blocks[name]
}

// bar makes the status that of a subject that is blocked for so long.
func (s *status) bar(left int64) {
	if left > 0 {
		if s.remaining > 0 {
			s.release = left
		}
		s.remaining, s.retry, s.release, s.reset = 0, max(s.retry, left), max(s.release, left), max(s.reset, left)
	}
}

// checkBlock is Check for a request of one subject that is blocked when it is refused too often, on a clock that goes forward.
func (o *oracle) checkBlock(now int64, req driver.Request, answer *driver.Answer) error {
	b, by, refused := o.block(req), req.Policy.Block, false
	if now < b.ends {
		req.Cost = 0
	}
	for _, limit := range limitsOf(req.Policy) {
		_, most := o.look(now, req, req.Cost, limit)
		refused = refused || most.refused
	}
	cost := req.Cost
	switch {
	case refused && cost > 0:
		b.refused = append(slices.DeleteFunc(b.refused, func(at int64) bool { return at <= now-by.Window }), now)
		if len(b.refused) == int(by.Refusals) {
			b.refused, b.ends = nil, now+by.Length
		}
	case cost > 0:
		o.state(req).charge(now, cost, limitsOf(req.Policy))
		cost = 0
	}
	o.left = max(0, b.ends-now)
	defer func() { o.left = 0 }()
	if answer.Blocked != (o.left > 0) || answer.Allowed() == (refused || o.left > 0) {
		return fmt.Errorf("%s, cost %d: allowed %v, blocked %v, want refused %v, blocked for %d",
			req.Key, req.Cost, answer.Allowed(), answer.Blocked, refused, o.left)
	}
	return o.compare(now, now, req, cost, answer, false)
}

// longest returns the most microseconds for which a limit may need a charge.
func longest(l sash.Limit) int64 { return lasts(l, 25*time.Hour, (31*24+1)*time.Hour) }

// settleable returns the microseconds for which a charge under limits can be settled: until no charge under them
// counts, whatever the clocks show, even if another policy on the same key counts it for longer.
func settleable(limits []sash.Limit) (longest int64) {
	for _, l := range limits {
		longest = max(longest, lasts(l, 48*time.Hour, 33*24*time.Hour))
	}
	return longest
}

// lasts returns how long a window is, where days and months may have these lengths.
func lasts(l sash.Limit, day, month time.Duration) int64 {
	window := l.Window
	switch l.Period {
	case sash.CalendarHour:
		window = 2 * time.Hour
	case sash.CalendarDay:
		window = day
	case sash.CalendarMonth:
		window = month
	}
	return window.Microseconds()
}

// span returns a name for the time over which a limit counts.
func span(l sash.Limit) string {
	l.Units, l.Name = 0, ""
	return l.String()
}
