package modeltest

import (
	"fmt"
	"slices"

	"example.com/sash/driver"
)

// A smallModel is one subject in the small world: what the definition counts, and the most that a log may count, which
// joins its oldest entries when it is full. An answer is right if each of its fields lies between the two; they differ
// only while something has joined, or was moved by a clock that went back.
type smallModel struct {
	smallWorld
	keep, units int64 // the longest window and the most units of any limit so far
	charges     []*smallCharge
	entries     []*smallEntry
	back        int64          // the latest time from which a clock went back
	seen        map[string]int // how often something rare happened

	definition, logged reading
}

// A smallWorld says how a store's log ends.
type smallWorld struct {
	resolution   int64
	countRefused bool
	most         int64 // units of an entry; what has so many may hold more, and gives nothing back
	entries      int   // of a log that is full
	sum          int64 // units of all entries from which on old ones may join; 0 is never
	set          bool  // a sorted set: it has no entries without units, and finds nothing that has joined
	later        int   // entries after a charge from which on it is not found; 0 is any number
}

// A smallCharge is what one call was charged.
type smallCharge struct {
	set   driver.Settlement
	at    int64 // made then, or moved to then by a clock that went back, or by calls that share its entry
	units int64
	entry *smallEntry // nil when the store has forgotten it
	moved bool        // by a clock that went back
	ended bool        // by a reset
}

// A smallEntry is what one entry of a log holds, at most.
type smallEntry struct {
	at, units int64
	may       int64 // the instant up to which it may have joined others; 0 when it has not
	joined    bool  // another has joined it
}

// A reading is a time-ordered list of units.
type reading struct{ at, units []int64 }

func (r *reading) reset() { r.at, r.units = r.at[:0], r.units[:0] }

func (r *reading) add(at, units int64) { r.at, r.units = append(r.at, at), append(r.units, units) }

// look is the definition of a limit's status: a walk over all units in the window.
func (r *reading) look(now, window, units, cost int64) (used int64, s driver.Status) {
	for i, at := range r.at {
		if at > now-window {
			used += r.units[i]
		}
	}
	s.Remaining = max(0, units-used)
	if used > 0 {
		s.Release, s.Reset = r.leave(now, window, used, min(used, units)-1), r.leave(now, window, used, 0)
	}
	if used+cost > units {
		s.Retry = r.leave(now, window, used, units-cost)
	}
	return used, s
}

// leave returns the time until no more than goal of the units in use are left.
func (r *reading) leave(now, window, used, goal int64) int64 {
	for i, at := range r.at {
		if at > now-window && r.units[i] > 0 {
			if used -= r.units[i]; used <= goal {
				return at + window - now
			}
		}
	}
	return 0
}

// truth is what the definition counts, and limit the most that the log may count.
func (m *smallModel) truth() *reading {
	m.definition.reset()
	for _, c := range m.charges {
		m.definition.add(c.at, c.units)
	}
	return &m.definition
}

func (m *smallModel) limit() *reading {
	m.logged.reset()
	for _, e := range m.entries {
		m.logged.add(e.at, e.units)
	}
	return &m.logged
}

// check judges an answer, and records what was charged.
func (m *smallModel) check(req driver.Request, res driver.Answer) (*smallCharge, error) {
	now := res.At
	m.redate(now)
	least, most := m.truth(), m.limit()
	for i, l := range req.Policy.Limits {
		low, _ := least.look(now, l.Window, l.Units, req.Cost)
		low = min(low, m.most)
		high, _ := most.look(now, l.Window, l.Units, req.Cost)
		switch refused := res.Refusals&(1<<i) != 0; {
		case !refused && low+req.Cost > l.Units:
			return nil, fmt.Errorf("%d fit into %v, which holds %d", req.Cost, l.String(), low)
		case refused && high+req.Cost <= l.Units:
			return nil, fmt.Errorf("%d are refused under %v, which holds %d, or %d in a full log", req.Cost, l.String(), low, high)
		}
	}
	var charged *smallCharge
	cost := req.Cost
	if cost > 0 && (res.Allowed() || m.countRefused) {
		charged = m.charge(now, req, res)
		least, most = m.truth(), m.limit()
	}
	if res.Allowed() {
		cost = 0
	}
	for i, l := range req.Policy.Limits {
		got := res.Statuses()[i]
		low, a := least.look(now, l.Window, l.Units, cost)
		high, b := most.look(now, l.Window, l.Units, cost)
		if low > high && high < m.most && !m.countRefused {
			return nil, fmt.Errorf("the definition counts %d under %v, and a full log %d", low, l.String(), high)
		}
		if a != b {
			a.Release = 0 // it grows with some charges, and shrinks with others
			b.Release = b.Reset
		}
		for _, f := range [...]struct {
			name           string
			got, low, high int64
		}{
			{"Remaining", got.Remaining, b.Remaining, a.Remaining},
			{"Retry", got.Retry, a.Retry, b.Retry},
			{"Release", got.Release, a.Release, b.Release},
			{"Reset", got.Reset, a.Reset, b.Reset},
		} {
			if f.got < f.low || f.got > f.high {
				return nil, fmt.Errorf("cost %d under %v, which holds %d, or %d in a full log: %s is %d, want %d to %d",
					req.Cost, l.String(), low, high, f.name, f.got, f.low, f.high)
			}
		}
	}
	return charged, nil
}

// redate is a clock that went back: what is later than now counts as made now, in one entry.
func (m *smallModel) redate(now int64) {
	n := len(m.entries)
	if n == 0 || m.entries[n-1].at <= now {
		return
	}
	m.seen["the clock went back"]++
	last := m.entries[n-1].at
	m.forget(last - m.keep)
	m.back = max(m.back, last)
	merged := &smallEntry{at: now}
	kept := m.entries[:0]
	for _, e := range m.entries {
		if e.at < now {
			kept = append(kept, e)
			continue
		}
		merged.units = min(m.most, merged.units+e.units)
		merged.joined = merged.joined || e.joined
	}
	m.entries = append(kept, merged)
	for _, c := range m.charges {
		if c.at >= now {
			c.moved = c.moved || c.at > now || c.set.At > now
			c.at, c.entry = now, merged
		}
	}
}

// forget drops what is not later than an instant.
func (m *smallModel) forget(cut int64) {
	m.entries = slices.DeleteFunc(m.entries, func(e *smallEntry) bool { return e.at <= cut })
	m.charges = slices.DeleteFunc(m.charges, func(c *smallCharge) bool {
		if c.at <= cut {
			c.entry = nil
		}
		return c.at <= cut
	})
}

func (m *smallModel) charge(now int64, req driver.Request, res driver.Answer) *smallCharge {
	m.keep = max(m.keep, req.Policy.Longest())
	for _, l := range req.Policy.Limits {
		m.units = max(m.units, l.Units)
	}
	m.forget(now - m.keep)
	c := &smallCharge{set: driver.Settlement{Request: req, At: now, Source: res.Source}, at: now, units: req.Cost}
	if n := len(m.entries); n > 0 && m.entries[n-1].at/m.resolution == now/m.resolution {
		c.entry = m.entries[n-1]
		for _, other := range m.charges {
			if other.entry == c.entry {
				other.at = now
			}
		}
		c.entry.at = now
	} else {
		for m.countRefused && m.outweighed(req.Cost) {
			m.seen["newer ones outweigh the oldest"]++
			m.drop()
		}
		if len(m.entries) == m.smallWorld.entries {
			m.join()
		}
		c.entry = &smallEntry{at: now}
		m.entries = append(m.entries, c.entry)
	}
	m.add(c.entry, req.Cost)
	m.charges = append(m.charges, c)
	return c
}

// outweighed reports whether the entries after the oldest fill any limit, with a new one.
func (m *smallModel) outweighed(units int64) bool {
	if len(m.entries) == 0 {
		return false
	}
	for _, e := range m.entries[1:] {
		units += e.units
	}
	return units > m.units
}

// drop forgets the oldest entry, but the definition does not.
func (m *smallModel) drop() {
	for _, c := range m.charges {
		if c.entry == m.entries[0] {
			c.entry = nil
		}
	}
	m.entries = m.entries[1:]
}

// join adds the oldest entry to the next.
func (m *smallModel) join() {
	m.seen["the oldest joins the next"]++
	first, next := m.entries[0], m.entries[1]
	next.joined = true
	m.add(next, first.units)
	for _, c := range m.charges {
		if c.entry == first {
			c.entry = next
		}
	}
	m.entries = m.entries[1:]
}

func (m *smallModel) add(e *smallEntry, units int64) {
	if e.units += units; e.units >= m.most {
		m.seen["an entry is full"]++
		e.units = m.most
	}
	var sum int64
	for _, e := range m.entries {
		sum += e.units
	}
	if m.sum > 0 && sum > m.sum {
		m.seen["the sums are full"]++
		for _, e := range m.entries {
			e.may = m.entries[len(m.entries)-1].at
		}
	}
}

// settle changes what a call is charged.
func (m *smallModel) settle(c *smallCharge, units int64) {
	change := units - c.units
	c.units = units
	for _, e := range m.entries {
		e.at = max(e.at, e.may) // what has joined shows now
	}
	if change < 0 {
		m.giveBack(c, change)
	} else if n := len(m.entries); n > 0 && change > 0 {
		e := c.entry
		if e == nil || c.moved || e.may > 0 || !m.finds(c) { // a later entry holds it
			e = m.entries[n-1]
			for _, other := range slices.Backward(m.entries) {
				if other.at >= c.set.At {
					e = other
				}
			}
			if m.set {
				e = m.entries[n-1]
			}
		}
		m.add(e, change)
	}
	for n := len(m.entries); n > 0 && m.entries[n-1].units == 0; n-- {
		m.entries = m.entries[:n-1]
	}
	if m.set {
		m.entries = slices.DeleteFunc(m.entries, func(e *smallEntry) bool { return e.units == 0 })
	}
}

// giveBack takes units from the entry of a charge, where it is sure to be found.
func (m *smallModel) giveBack(c *smallCharge, change int64) {
	switch e := c.entry; {
	case e == nil || c.moved || !m.finds(c):
		m.seen["what has joined or moved is not given back"]++
	case e.units >= m.most || e.may > 0:
		m.seen["a full entry gives nothing back"]++
	default:
		e.units += change
	}
}

// finds reports whether the entry of a charge is found.
func (m *smallModel) finds(c *smallCharge) bool {
	i := slices.Index(m.entries, c.entry)
	if m.later > 0 && len(m.entries)-1-i >= m.later {
		return false
	}
	at := c.set.At
	if c.entry.at == at {
		return true
	}
	if at <= m.back {
		return false
	}
	if c.entry.at/m.resolution == at/m.resolution {
		return true
	}
	if found := !m.set && i == 0 && len(m.entries) == m.smallWorld.entries; found {
		m.seen["what has joined is found"]++
		return true
	}
	return false
}
