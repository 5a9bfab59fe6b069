package modeltest

import (
	"math"

	"example.com/sash"
)

// debts is the state of GCRA: the debt under each window length, in microseconds of that window. A call of cost c
// adds c*Window/Units. The debt may reach one window and half a microsecond, and shrinks by a microsecond each
// microsecond.
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
		x, y := int64(0), l.Window.Microseconds()+1
		for x < y {
			if mid := (x + y) / 2; fits(mid, cost) {
				y = mid
			} else {
				x = mid + 1
			}
		}
		return x
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
