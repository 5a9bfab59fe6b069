package modeltest

import (
	"fmt"
	"math"
	"slices"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// books reports whether a request may be booked.
func books(req driver.Request) bool {
	exact := req.Policy.Algorithm == sash.SlidingLog || req.Policy.Algorithm == sash.SlidingBuckets
	return req.Within > 0 && req.Cost > 0 && exact && !req.Policy.CountRefused && req.Policy.Block.Refusals == 0
}

// latest returns the time of the latest charge.
func (l *log) latest() int64 {
	if len(l.charges) == 0 {
		return math.MinInt64
	}
	return l.charges[len(l.charges)-1].at
}

// since returns the first instant that counts in the window that ends at an instant.
func since(limit sash.Limit, at int64) int64 {
	if limit.Period != 0 {
		start, _ := bounds(limit, at)
		return start
	}
	return at - limit.Window.Microseconds() + 1
}

// used returns the units in the window that ends at an instant.
func (l *log) used(limit sash.Limit, at int64, loose bool) (used int64) {
	first := since(limit, at)
	for _, c := range l.seen(loose) {
		if first <= c.at && c.at <= at {
			used += c.units
		}
	}
	return used
}

// earliest returns the first instant, from one on that no charge is later than, at which a limit has room. Windows change
// there, where a charge leaves, and where a period ends.
func (l *log) earliest(from, cost int64, limit sash.Limit, loose bool) int64 {
	instants := []int64{from}
	for _, c := range l.seen(loose) {
		if at := c.at + limit.Window.Microseconds(); at > from {
			instants = append(instants, at)
		}
	}
	if limit.Period != 0 {
		_, end := bounds(limit, from)
		instants = []int64{from, end}
	}
	slices.Sort(instants)
	for _, at := range instants {
		if l.used(limit, at, loose)+cost <= limit.Units {
			return at
		}
	}
	return math.MaxInt64
}

// lookAhead is look while bookings lie ahead: a call fits if it fits into every window that it would count in.
func (l *log) lookAhead(now, cost int64, limit sash.Limit, loose bool) status {
	most := l.used(limit, now, loose)
	for _, c := range l.charges {
		if c.at > now && since(limit, c.at) <= now {
			most = max(most, l.used(limit, c.at, loose))
		}
	}
	s := status{remaining: max(0, limit.Units-most), refused: most+cost > limit.Units}
	end := l.latest() + limit.Window.Microseconds()
	if limit.Period != 0 {
		_, end = bounds(limit, l.latest())
	}
	s.reset = end - now
	if s.remaining < limit.Units {
		s.release = l.earliest(l.latest(), s.remaining+1, limit, loose) - now
	}
	return s
}

// instants returns how many instants have charges, after one and before another.
func (l *log) instants(after, before int64) (n int) {
	last := int64(math.MinInt64)
	for _, c := range l.charges {
		if after < c.at && c.at < before && c.at != last {
			n++
			last = c.at
		}
	}
	return n
}

// ahead reports whether bookings of a subject lie ahead.
func (o *oracle) ahead(now int64, req driver.Request) bool {
	l, ok := o.state(req).(*log)
	return ok && l.latest() > now
}

// far reports whether there are more bookings than a store looks at, so that it may take a limit to be full.
func (o *oracle) far(now int64, req driver.Request, limit sash.Limit) bool {
	if !o.ahead(now, req) {
		return false
	}
	l, window := o.state(req).(*log), longest(limit)
	return l.instants(now-window, now+window)+l.gaps > threshold.Log.Walk
}

// wait checks how long refused calls wait while bookings of a subject lie ahead: until all have room behind them. That is
// the longest retry time, and each limit has one of its own, or the longest. It reports whether that is so.
func (o *oracle) wait(now int64, reqs []driver.Request, answers []driver.Answer) (waits bool, err error) {
	ahead, refused := false, false
	for i, req := range reqs {
		ahead = ahead || o.ahead(now, req)
		refused = refused || !answers[i].Allowed()
	}
	if !ahead || !refused || reqs[0].Policy.CountRefused {
		return false, nil
	}
	least, most := o.behind(now, reqs)
	longest := int64(0)
	for i, req := range reqs {
		for j, s := range answers[i].Statuses() {
			limit := limitsOf(req.Policy)[j]
			if answers[i].Refusals&(1<<j) == 0 {
				if s.Retry != 0 {
					return false, fmt.Errorf("%s: %v does not refuse, and its Retry is %d", req.Key, limit, s.Retry)
				}
				continue
			}
			longest = max(longest, s.Retry)
			if l := o.state(req).(*log); s.Retry < l.earliest(max(now, l.latest()), req.Cost, limit, false)-now {
				return false, fmt.Errorf("%s: %v has no room after its Retry of %d", req.Key, limit, s.Retry)
			}
		}
	}
	if longest < least-now || longest > most-now {
		return false, fmt.Errorf("the longest Retry while bookings lie ahead is %d, want %s", longest, between(least-now, most-now))
	}
	return true, nil
}

// behind returns the first instant at which all requests have room behind all bookings of their subjects, without and
// with the charges that a store may have forgotten.
func (o *oracle) behind(now int64, reqs []driver.Request) (least, most int64) {
	from := o.from(now, reqs)
	least, most = from, from
	for _, req := range reqs {
		l := o.state(req).(*log)
		for _, limit := range limitsOf(req.Policy) {
			least = max(least, l.earliest(from, req.Cost, limit, false))
			most = max(most, l.earliest(from, req.Cost, limit, true))
		}
	}
	return least, most
}

// gap returns the first instant at which requests fit and delay no booking, without and with the charges that a store may
// have forgotten, where units came back before bookings. It is sure if a store has to find it.
func (o *oracle) gap(now int64, reqs []driver.Request) (least, most int64, sure bool) {
	open, few, moved := false, true, false
	for _, req := range reqs {
		l, ok := o.state(req).(*log)
		if !ok || req.Within <= 1 {
			return math.MaxInt64, math.MaxInt64, false
		}
		instants := l.instants(now-req.Policy.Longest(), math.MaxInt64) + l.gaps
		open, few = open || l.open && l.latest() > now, few && (1+len(req.Policy.Limits))*instants <= threshold.Log.Gaps && (len(reqs) == 1 || instants < threshold.Log.Logs)
		moved = moved || slices.ContainsFunc(l.charges, func(c unit) bool { return c.moved })
	}
	if !open {
		return math.MaxInt64, math.MaxInt64, false
	}
	least, most = o.fits(now, reqs, false), o.fits(now, reqs, true)
	for _, req := range reqs {
		for _, limit := range limitsOf(req.Policy) {
			if limit.Period != 0 { // a store knows the next period, and not those behind it
				_, end := bounds(limit, now)
				_, end = bounds(limit, end)
				few = few && most < end
			}
		}
	}
	return least, most, few && !moved && most < o.from(now, reqs)
}

// fits returns the first instant from now on at which no window that requests would count in is too full with them.
func (o *oracle) fits(now int64, reqs []driver.Request, loose bool) int64 {
	instants := []int64{now}
	for _, req := range reqs {
		for _, c := range o.state(req).(*log).charges {
			for _, limit := range limitsOf(req.Policy) {
				at := c.at + limit.Window.Microseconds()
				if limit.Period != 0 {
					_, at = bounds(limit, c.at)
				}
				if at > now {
					instants = append(instants, at)
				}
			}
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		fits := true
		for _, req := range reqs {
			for _, limit := range limitsOf(req.Policy) {
				fits = fits && !o.state(req).(*log).lookAhead(at, req.Cost, limit, loose).refused
			}
		}
		if fits {
			return at
		}
	}
	return math.MaxInt64
}

// from returns the first instant at which requests can be booked: no charge is later.
func (o *oracle) from(now int64, reqs []driver.Request) int64 {
	from := now
	for _, req := range reqs {
		from = max(from, o.state(req).(*log).latest())
	}
	return from
}

// checkBooking is Check for requests that may be booked, all for one instant.
func (o *oracle) checkBooking(now int64, reqs []driver.Request, answers []driver.Answer) error {
	allowed := true
	for i := range answers {
		if n := len(answers[i].Statuses()); n != len(reqs[i].Policy.Limits) {
			return fmt.Errorf("%s: there are %d statuses, want %d", reqs[i].Key, n, len(reqs[i].Policy.Limits))
		}
		allowed = allowed && answers[i].Allowed()
	}
	if !allowed {
		return o.checkUnbooked(now, reqs, answers)
	}
	least, most := o.behind(now, reqs)
	at := answers[0].At
	if first, last, sure := o.gap(now, reqs); at < o.from(now, reqs) || sure {
		least, most = first, last
	}
	if at < least || at > most || at-now > reqs[0].Within {
		return fmt.Errorf("%s, cost %d: booked for %d, want %s, within %d of %d", reqs[0].Key, reqs[0].Cost, at, between(least, most), reqs[0].Within, now)
	}
	for i, req := range reqs {
		l := o.state(req).(*log)
		if at == now {
			l.charge(now, req.Cost, limitsOf(req.Policy))
		} else {
			l.book(now, at, req.Cost, limitsOf(req.Policy))
		}
		if n := l.instants(now, math.MaxInt64); n > threshold.Log.Ahead {
			return fmt.Errorf("%s has bookings at %d instants ahead, more than %d", req.Key, n, threshold.Log.Ahead)
		}
		if err := o.compare(now, at, req, 0, &answers[i], false); err != nil {
			return fmt.Errorf("%s, cost %d, booked: %w", req.Key, req.Cost, err)
		}
	}
	return nil
}

// checkUnbooked checks a refusal of requests that may be booked. Limits refuse them that have no room until Within has
// passed, or if too many bookings lie ahead, that have none now.
func (o *oracle) checkUnbooked(now int64, reqs []driver.Request, answers []driver.Answer) error {
	from := o.from(now, reqs)
	for i, req := range reqs {
		l := o.state(req).(*log)
		crowded := l.instants(now, math.MaxInt64)+l.gaps >= threshold.Log.Ahead
		for j, limit := range limitsOf(req.Policy) {
			least, most := l.earliest(from, req.Cost, limit, false)-now, l.earliest(from, req.Cost, limit, true)-now
			got := &answers[i].Statuses()[j]
			switch refused := answers[i].Refusals&(1<<j) != 0; {
			case refused && most <= req.Within && !(crowded && most > 0):
				return fmt.Errorf("%s, cost %d: %v has room in %d, and refuses within %d", req.Key, req.Cost, limit, most, req.Within)
			case refused && (got.Retry < least || got.Retry > most):
				return fmt.Errorf("%s, cost %d: the Retry of %v is %d, want %s", req.Key, req.Cost, limit, got.Retry, between(least, most))
			case !refused && least > req.Within:
				return fmt.Errorf("%s, cost %d: %v has no room within %d, but in %d", req.Key, req.Cost, limit, req.Within, least)
			case !refused && got.Retry != 0:
				return fmt.Errorf("%s, cost %d: %v does not refuse, and its Retry is %d", req.Key, req.Cost, limit, got.Retry)
			}
		}
		var rest driver.Answer
		rest.Set(answers[i].At, 0, answers[i].Statuses())
		for j := range rest.Statuses() {
			rest.Statuses()[j].Retry = 0
		}
		if err := o.compare(now, now, req, 0, &rest, true); err != nil {
			return fmt.Errorf("%s, cost %d, within %d, refused: %w", req.Key, req.Cost, req.Within, err)
		}
	}
	return nil
}

// latest returns the time of the latest charge of any subject.
func (o *oracle) latest() int64 {
	at := int64(math.MinInt64)
	for _, s := range o.states {
		if l, ok := s.(*log); ok {
			at = max(at, l.latest())
		}
	}
	return at
}
