package window

import (
	"math"
	"slices"
)

// A GCRA is the generic cell rate algorithm in its virtual scheduling form (ITU-T I.371): one
// theoretical arrival time a limit, here kept as the instant of the last charge and the debt at that
// instant, in microseconds of the limit's own rate. A call of cost c adds c*window/units to the debt and
// is admitted while the debt fits the window. Units may come all at once, and then again at the rate:
// up to twice the units in one sliding window.
type GCRA struct {
	meters []meter
}

type meter struct {
	window int64
	at     int64
	debt   float64
}

// slack absorbs the rounding of the debt, which is kept in floating point: half a microsecond.
const slack = 0.5

// owed returns the debt at now. A charge later than now was left behind by a clock that went back: it
// counts as made now.
func (m *meter) owed(now int64) float64 {
	m.at = min(m.at, now)
	return math.Max(0, m.debt-float64(now-m.at))
}

func (g *GCRA) at(window int64) *meter {
	for i := range g.meters {
		if g.meters[i].window == window {
			return &g.meters[i]
		}
	}
	return nil
}

// fits returns the smallest d after which a call of the given cost fits a debt.
func fits(debt float64, cost int64, l *Limit) int64 {
	over := debt + float64(cost)*float64(l.Window)/float64(l.Units) - float64(l.Window) - slack
	return max(0, int64(math.Ceil(over)))
}

// Look implements State.
func (g *GCRA) Look(now, cost int64, limits []Limit, out []Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		var debt float64
		if m := g.at(limit.Window); m != nil {
			debt = m.owed(now)
		}
		free := math.Floor((float64(limit.Window) + slack - debt) * float64(limit.Units) / float64(limit.Window))
		s := Status{Remaining: max(0, min(limit.Units, int64(free)))}
		if s.Remaining < limit.Units {
			s.Release = max(1, fits(debt, s.Remaining+1, limit))
			s.Reset = max(s.Release, fits(debt, limit.Units, limit))
		}
		if s.Retry = fits(debt, cost, limit); s.Retry > 0 {
			refusals |= 1 << i
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State. The debt never exceeds one window, so that calls that are charged although
// they were refused do not lock their caller out for longer.
func (g *GCRA) Charge(now, cost int64, limits []Limit) {
	for i := range limits {
		limit := &limits[i]
		m := g.at(limit.Window)
		if m == nil {
			g.meters = slices.DeleteFunc(g.meters, func(m meter) bool { return m.expires() <= now })
			g.meters = append(g.meters, meter{window: limit.Window, at: now})
			m = &g.meters[len(g.meters)-1]
		}
		debt := m.owed(now) + float64(cost)*float64(limit.Window)/float64(limit.Units)
		m.at, m.debt = now, math.Min(debt, float64(limit.Window))
	}
}

func (m *meter) expires() int64 { return m.at + int64(math.Ceil(m.debt)) }

// Refund implements State.
func (g *GCRA) Refund(now, _, cost int64, limits []Limit) {
	for i := range limits {
		limit := &limits[i]
		if m := g.at(limit.Window); m != nil {
			debt := m.owed(now) - float64(cost)*float64(limit.Window)/float64(limit.Units)
			m.at, m.debt = now, math.Max(0, debt)
		}
	}
}

// Expires implements State.
func (g *GCRA) Expires() int64 {
	var t int64
	for i := range g.meters {
		t = max(t, g.meters[i].expires())
	}
	return t
}
