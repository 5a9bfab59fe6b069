package modeltest

import (
	"math"

	"example.com/sash"
)

// A tally is the list of charges made under one window length, which the fixed window and the sliding counter
// count. Charges in the window of now, or in the one before it, matter.
type tally struct {
	charges []unit
	seen    int64 // the latest instant since the clock last went back
}

// counts is the state of the two algorithms whose windows do not slide.
type counts struct {
	weigh   bool // count the previous window by its overlap
	tallies map[string]*tally
	spans   map[string]sash.Limit
}

func (c *counts) see(now int64) {
	for name, t := range c.tallies {
		t.seen = max(t.seen, now)
		for i := range t.charges {
			if k := &t.charges[i]; c.forgotten(c.spans[name], k.at, now) {
				k.loose = true
			}
		}
	}
}

// forgotten reports whether a charge no longer matters at an instant.
func (c *counts) forgotten(l sash.Limit, at, now int64) bool {
	_, end := period(l, at)
	if c.weigh {
		end += l.Window.Microseconds()
	}
	return end <= now
}

func (c *counts) touch(now int64, limits []sash.Limit) {
	for _, l := range limits {
		t := c.tallies[span(l)]
		if t == nil {
			continue
		}
		start, _ := period(l, now)
		latest, _ := period(l, t.seen)
		for i := range t.charges {
			k := &t.charges[i]
			own, _ := period(l, k.at)
			// The clock went back over a boundary. A store counts by windows, not by instants, so it need
			// not remember charges before the window that it was in.
			k.loose = k.loose || latest > start && own < latest
			if k.at > now {
				k.at, k.moved = now, true
			}
		}
		t.seen = now
	}
}

// period returns the fixed window around an instant.
func period(l sash.Limit, at int64) (start, end int64) {
	if l.Period != 0 {
		return bounds(l, at)
	}
	w := l.Window.Microseconds()
	start = at / w * w
	return start, start + w
}

func (c *counts) used(l sash.Limit, at int64, loose bool) int64 {
	start, _ := period(l, at)
	var current, previous int64
	for _, k := range c.tallies[span(l)].charges {
		switch {
		case k.loose && !loose:
		case k.at >= start:
			current += k.units
		case c.weigh && k.at >= start-l.Window.Microseconds():
			previous += k.units
		}
	}
	if !c.weigh {
		return current
	}
	w, elapsed := l.Window.Microseconds(), at-start
	return current + int64(math.Ceil(float64(previous)*float64(w-elapsed)/float64(w)))
}

func (c *counts) look(now, cost int64, l sash.Limit, loose bool) status {
	if c.tallies[span(l)] == nil {
		return status{remaining: l.Units}
	}
	used := func(d int64) int64 { return c.used(l, now+d, loose) }
	if !c.weigh {
		_, end := period(l, now)
		return describe(used, []int64{0, end - now}, cost, l.Units)
	}
	// The units in use never grow without calls, and are 0 two windows later.
	first := func(ok func(d int64) bool) int64 { return firstOf(2*l.Window.Microseconds(), ok) }
	in := used(0)
	s := status{remaining: max(0, l.Units-in), refused: in+cost > l.Units}
	if in > 0 {
		s.release = first(func(d int64) bool { return used(d) < min(in, l.Units) })
		s.reset = first(func(d int64) bool { return used(d) == 0 })
	}
	if s.refused {
		s.retry = first(func(d int64) bool { return used(d)+cost <= l.Units })
	}
	return s
}

// firstOf returns the first of the numbers below n that something holds of, and of all after it, or n.
func firstOf(n int64, holds func(int64) bool) int64 {
	x, y := int64(0), n
	for x < y {
		if mid := (x + y) / 2; holds(mid) {
			y = mid
		} else {
			x = mid + 1
		}
	}
	return x
}

func (c *counts) charge(now, cost int64, limits []sash.Limit) {
	for _, l := range limits {
		name := span(l)
		if c.tallies[name] == nil {
			c.tallies[name], c.spans[name] = &tally{seen: now}, l
		}
		t := c.tallies[name]
		t.charges = append(t.charges, unit{made: now, at: now, units: cost})
	}
}

func (c *counts) settle(now, made, cost, units int64, limits []sash.Limit) {
	lasts := settleable(limits)
	if c.weigh {
		lasts *= 2
	}
	if now-made >= lasts { // also if the clock goes back then, and the charge counts again
		return
	}
	for _, l := range limits {
		if t := c.tallies[span(l)]; t != nil {
			t.charges = settled(t.charges, made, cost, units)
		}
	}
}

// debts is the state of GCRA: the debt under each window length, in microseconds of that window. A call of cost c adds
// c*Window/Units. The debt may reach one window and half a microsecond, and shrinks by a microsecond each microsecond.
type debts struct {
	certain, possible map[string]debt
	paid              map[string]int64 // when a window was last seen without any debt
}

type debt struct {
	at   int64
	owed float64
}

func (d debt) after(at int64) float64 { return max(0, d.owed-float64(at-d.at)) }

func (g *debts) see(now int64) {
	for name, d := range g.certain {
		if d.at+int64(math.Ceil(d.owed)) <= now {
			delete(g.certain, name)
		}
	}
	for name, d := range g.possible {
		if d.at+int64(math.Ceil(d.owed)) <= now {
			g.paid[name] = now
		}
	}
}

func (g *debts) touch(now int64, limits []sash.Limit) {
	for _, l := range limits {
		for _, m := range [...]map[string]debt{g.certain, g.possible} {
			if d, ok := m[span(l)]; ok {
				m[span(l)] = debt{min(d.at, now), d.owed}
			}
		}
	}
}

func (g *debts) look(now, cost int64, l sash.Limit, loose bool) status {
	m := g.certain
	if loose {
		m = g.possible
	}
	d := debt{at: now}
	if have, ok := m[span(l)]; ok {
		d = have
	}
	w, n := float64(l.Window.Microseconds()), float64(l.Units)
	fits := func(after, cost int64) bool { return d.after(now+after)+float64(cost)*w/n <= w+0.5 }
	first := func(cost int64) int64 {
		return firstOf(l.Window.Microseconds()+1, func(d int64) bool { return fits(d, cost) })
	}
	s := status{refused: !fits(0, cost)}
	s.remaining = min(l.Units, max(0, int64(math.Floor((w+0.5-d.after(now))*n/w))))
	if s.remaining < l.Units {
		s.release = max(1, first(s.remaining+1))
		s.reset = max(1, first(l.Units))
	}
	if s.refused {
		s.retry = first(cost)
	}
	return s
}

func (g *debts) charge(now, cost int64, limits []sash.Limit) {
	for _, l := range limits {
		w := float64(l.Window.Microseconds())
		for _, m := range [...]map[string]debt{g.certain, g.possible} {
			owed := m[span(l)].after(now) + float64(cost)*w/float64(l.Units)
			m[span(l)] = debt{now, min(owed, w)}
		}
	}
}

func (g *debts) settle(now, made, cost, units int64, limits []sash.Limit) {
	for _, l := range limits {
		w := l.Window.Microseconds()
		if now-made >= w {
			continue // it is paid
		}
		paid := made <= g.paid[span(l)] // then a store may have forgotten the charge
		for i, m := range [...]map[string]debt{g.certain, g.possible} {
			if paid && (units < cost) == (i == 1) {
				continue
			}
			if d, ok := m[span(l)]; ok {
				more := float64(units-cost) * float64(w) / float64(l.Units)
				m[span(l)] = debt{now, min(float64(w), max(0, d.after(now)+more))}
			}
		}
	}
}
