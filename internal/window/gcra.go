package window

import (
	"math"

	"example.com/sash/driver"
)

// A GCRA is the generic cell rate algorithm in its virtual scheduling form (ITU-T I.371). It keeps one theoretical arrival time for each
// limit, as the instant of the last charge and the debt then, in microseconds at the limit's rate. A call of cost c adds c*window/units to
// the debt, and is admitted if the debt then fits the window. A burst and then calls at the rate use up to twice the units in a window.
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

// owed returns the debt at an instant that is not before the last charge.
func (m *meter) owed(t int64) float64 { return math.Max(0, m.debt-float64(t-m.at)) }

// at returns the meter of a window, or nil. If the last charge is later than now, the clock went back: the charge counts
// as made now.
func (g *GCRA) at(now, window int64) *meter {
	for i := range g.meters {
		if m := &g.meters[i]; m.window == window {
			m.at = min(m.at, now)
			return m
		}
	}
	return nil
}

// fits reports whether a call fits d microseconds from now, if no other call comes.
func (m *meter) fits(now, d, cost int64, l *driver.Limit) bool {
	return m.owed(now+d)+float64(cost)*float64(l.Window)/float64(l.Units) <= float64(l.Window)+slack
}

// wait returns the smallest d after which a call fits: it solves for d, and then corrects the rounding.
func (m *meter) wait(now, cost int64, l *driver.Limit) int64 {
	if m.fits(now, 0, cost, l) {
		return 0
	}
	over := m.owed(now) + float64(cost)*float64(l.Window)/float64(l.Units) - float64(l.Window) - slack
	d := max(1, int64(math.Ceil(over)))
	for d > 1 && m.fits(now, d-1, cost, l) {
		d--
	}
	for !m.fits(now, d, cost, l) {
		d++
	}
	return d
}

// Look implements State.
func (g *GCRA) Look(now, cost int64, limits []driver.Limit, out []driver.Status) (refusals uint64) {
	for i := range limits {
		limit := &limits[i]
		m := g.at(now, limit.Window)
		if m == nil {
			m = &meter{at: now}
		}
		free := math.Floor((float64(limit.Window) + slack - m.owed(now)) * float64(limit.Units) / float64(limit.Window))
		s := driver.Status{Remaining: max(0, min(limit.Units, int64(free)))}
		if s.Remaining < limit.Units {
			s.Release = max(1, m.wait(now, s.Remaining+1, limit))
			s.Reset = max(s.Release, m.wait(now, limit.Units, limit))
		}
		if s.Retry = m.wait(now, cost, limit); s.Retry > 0 {
			refusals |= 1 << i
		}
		out[i] = s
	}
	return refusals
}

// Charge implements State. The debt never exceeds one window, so that charged refusals do not lock the
// caller out for longer.
func (g *GCRA) Charge(now, cost int64, limits []driver.Limit) {
	for i := range limits {
		limit := &limits[i]
		m := g.at(now, limit.Window)
		if m == nil {
			g.meters = append(g.meters, meter{window: limit.Window, at: now})
			m = &g.meters[len(g.meters)-1]
		}
		debt := m.owed(now) + float64(cost)*float64(limit.Window)/float64(limit.Units)
		m.at, m.debt = now, math.Min(debt, float64(limit.Window))
	}
}

// Settle implements State. A charge from a window ago or earlier is paid off. The debt never exceeds one window.
func (g *GCRA) Settle(now, at, more int64, limits []driver.Limit) {
	for i := range limits {
		limit := &limits[i]
		if m := g.at(now, limit.Window); m != nil && now-at < limit.Window {
			debt := m.owed(now) + float64(more)*float64(limit.Window)/float64(limit.Units)
			m.at, m.debt = now, math.Max(0, math.Min(debt, float64(limit.Window)))
		}
	}
}

// Reward implements State. A unit that is paid in part counts as one unit given back.
func (g *GCRA) Reward(now, units int64, limits []driver.Limit) (given int64) {
	for i := range limits {
		limit := &limits[i]
		m := g.at(now, limit.Window)
		if m == nil || m.owed(now) == 0 {
			continue
		}
		owed := m.owed(now)
		given = max(given, min(units, int64(math.Ceil(owed*float64(limit.Units)/float64(limit.Window)))))
		m.at, m.debt = now, math.Max(0, owed-float64(units)*float64(limit.Window)/float64(limit.Units))
	}
	return given
}

// Expires implements State.
func (g *GCRA) Expires() int64 {
	var t int64
	for i := range g.meters {
		t = max(t, g.meters[i].at+int64(math.Ceil(g.meters[i].debt)))
	}
	return t
}

// Bytes implements State.
func (g *GCRA) Bytes() int { return 24 * max(0, cap(g.meters)-2) }
