package modeltest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
)

// Fits returns the least and the most units, of one to the request's cost, that a partial request may be charged; none if it is refused.
func (o *oracle) Fits(at time.Time, req driver.Request) (least, most int64) {
	now := at.UnixMicro()
	o.see(now)
	o.state(req).touch(now, limitsOf(req.Policy))
	least, most = req.Cost, req.Cost
	if now < o.block(req).ends {
		return 0, 0
	}
	for _, limit := range limitsOf(req.Policy) {
		a, b := o.look(now, req, 0, limit)
		least, most = min(least, a.remaining, b.remaining), min(most, max(a.remaining, b.remaining))
		if o.far(now, req, limit) {
			least = 0
		}
	}
	return least, most
}

// Force records a request that is charged whether or not there is room.
func (o *oracle) Force(at time.Time, req driver.Request) {
	now, limits := at.UnixMicro(), limitsOf(req.Policy)
	o.see(now)
	o.state(req).touch(now, limits)
	o.state(req).charge(now, req.Cost, limits)
}

// Reward records units that are given back, and returns how many. If that depends on charges that a store may have
// forgotten, it records nothing and returns false.
func (o *oracle) Reward(at time.Time, req driver.Request) (given int64, sure bool) {
	now, limits := at.UnixMicro(), limitsOf(req.Policy)
	o.see(now)
	o.state(req).touch(now, limits)
	return o.state(req).give(now, req.Cost, limits)
}

func (l *log) give(now, units int64, limits []sash.Limit) (given int64, sure bool) {
	cut := now
	for _, limit := range limits {
		cut = min(cut, since(limit, now)-1)
	}
	entries := make(map[int64]int64)
	for _, c := range l.charges {
		if entries[c.at] += c.units; c.at > cut && c.at <= now && c.loose || entries[c.at] >= driver.MaxUnits {
			return 0, false
		}
	}
	slices.SortStableFunc(l.charges, func(a, b unit) int { return cmp.Compare(a.at, b.at) })
	for i := range l.charges {
		if c := &l.charges[i]; c.at > cut && c.at <= now {
			given += c.take(units - given)
		}
	}
	l.open = l.open || given > 0 && l.latest() > now
	l.charges = slices.DeleteFunc(l.charges, func(c unit) bool { return c.units == 0 })
	return given, true
}

// take takes up to some units from a charge, and returns how many.
func (c *unit) take(units int64) int64 {
	units = min(units, c.units)
	c.units -= units
	return units
}

func (c *counts) give(now, units int64, limits []sash.Limit) (given int64, sure bool) {
	for _, l := range limits {
		if t := c.tallies[span(l)]; t != nil && slices.ContainsFunc(t.charges, func(k unit) bool { return k.loose }) {
			return 0, false
		}
	}
	for _, l := range limits {
		t := c.tallies[span(l)]
		if t == nil {
			continue
		}
		start, _ := period(l, now)
		left := units
		if c.weigh { // the window before
			for i := range t.charges {
				if k := &t.charges[i]; k.at < start && k.at >= start-l.Window.Microseconds() {
					left -= k.take(left)
				}
			}
		}
		for i := range t.charges {
			if k := &t.charges[i]; k.at >= start {
				left -= k.take(left)
			}
		}
		given = max(given, units-left)
	}
	return given, true
}

func (g *debts) give(now, units int64, limits []sash.Limit) (given int64, sure bool) {
	for _, l := range limits {
		a, certain := g.certain[span(l)]
		b, possible := g.possible[span(l)]
		if certain != possible || a != b {
			return 0, false
		}
	}
	for _, l := range limits {
		d, ok := g.certain[span(l)]
		if !ok || d.after(now) == 0 {
			continue
		}
		w, n := float64(l.Window.Microseconds()), float64(l.Units)
		given = max(given, min(units, int64(math.Ceil(d.after(now)*n/w))))
		left := debt{now, max(0, d.after(now)-float64(units)*w/n)}
		g.certain[span(l)], g.possible[span(l)] = left, left
	}
	return given, true
}

// take makes a call whose units are not fixed, on stores that know them.
func (w *walk) take() error {
	if w.store.Powers()&driver.CanTake == 0 {
		return nil
	}
	req := w.request()
	req.Within = 0
	switch w.choose(5) {
	case 0:
		return w.penalize(req)
	case 1:
		return w.reward(req)
	}
	req.Partial = true
	at := must(w.decides(req))
	least, most := w.oracle.Fits(at, req)
	res := must(drivertest.Of(w.store).Decide(context.Background(), req))
	w.note("up to %d units: %d of %s to be charged", req.Cost, res.Charged, between(least, most))
	if res.Charged < least || res.Charged > most || res.Allowed() != (res.Charged > 0) {
		return fmt.Errorf("%s, up to %d units: %d are charged, allowed %v; want %s", req.Key, req.Cost, res.Charged, res.Allowed(), between(least, most))
	}
	req.Partial, req.Cost = false, max(1, res.Charged)
	return w.check([]driver.Request{req}, []driver.Answer{res})
}

// unblocked returns a policy without its block.
func unblocked(p *driver.Policy) *driver.Policy {
	other := *p
	other.Block = driver.Block{}
	return &other
}

// penalize charges whether or not there is room.
func (w *walk) penalize(req driver.Request) error {
	req.Policy = unblocked(req.Policy)
	forced := *req.Policy
	forced.CountRefused = true
	if w.choose(3) == 0 && req.Cost < 1e6 { // an entry of a log counts no more than MaxUnits
		req.Cost *= 3
	}
	look := req
	look.Cost = 0
	req.Policy, req.Forced = &forced, true
	at := must(w.decides(look))
	w.oracle.Force(at, req)
	res := must(drivertest.Of(w.store).Decide(context.Background(), req))
	w.note("a penalty")
	return w.check([]driver.Request{look}, []driver.Answer{res})
}

// reward gives units back.
func (w *walk) reward(req driver.Request) error {
	req.Policy = unblocked(req.Policy)
	if w.choose(3) == 0 {
		req.Cost *= 3
	}
	if w.opts.CountRefused { // a store forgets what refused calls outweigh
		return nil
	}
	if n := len(w.admitted); n > 0 {
		w.outlive(w.admitted[w.choose(n)])
	}
	at := must(w.decides(req))
	given, sure := w.oracle.Reward(at, req)
	if !sure { // the store sees this instant, as the oracle has
		req.Cost = 0
		return w.call(req)
	}
	w.note("%s: %d units of %d are given back under %v", req.Key, given, req.Cost, limitsOf(req.Policy))
	res := must(drivertest.Of(w.store).GiveBack(context.Background(), req))
	if res.Charged != given {
		return fmt.Errorf("%s: of %d units %d were given back, want %d", req.Key, req.Cost, res.Charged, given)
	}
	w.admitted, w.again = nil, nil // a charge from which units were taken is not settled to less
	req.Cost = 0
	return w.check([]driver.Request{req}, []driver.Answer{res})
}
