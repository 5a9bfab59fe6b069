package memstore

import (
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// IDs are the calls and settlements that a subject remembers. The zero value and nil are none.
type ids struct {
	known map[window.Name]memo
	order []window.Name // in order of arrival
	// floor is the latest end of a settlement that was forgotten before it. One that ends no later may have been applied.
	floor int64
}

// A memo is until when an ID is remembered, and the refusals of its call.
type memo struct {
	until    int64
	refusals uint64
}

// find returns what is remembered of an ID.
func (i *ids) find(now int64, name window.Name) (memo, bool) {
	if i == nil {
		return memo{}, false
	}
	m, ok := i.known[name]
	return m, ok && m.until > now
}

// add remembers an ID that is not known. It forgets a few that have expired, and the oldest if there are too many.
func (i *ids) add(now int64, name window.Name, m memo) {
	for range 4 {
		if len(i.order) == 0 || i.known[i.order[0]].until > now {
			break
		}
		i.drop()
	}
	if _, expired := i.known[name]; expired {
		i.known[name] = m
		return
	}
	if len(i.order) >= threshold.IDs {
		if oldest := i.order[0]; oldest.Settles() {
			i.floor = max(i.floor, i.known[oldest].until)
		}
		i.drop()
	}
	if i.known == nil {
		i.known = make(map[window.Name]memo)
	}
	i.known[name] = m
	i.order = append(i.order, name)
}

func (i *ids) drop() {
	delete(i.known, i.order[0])
	i.order = i.order[1:]
}

// first reports whether a settlement is applied for the first time, and remembers it. Of two that are possible it takes the
// one that admits less.
func (s *subject) first(now int64, set *driver.Settlement) bool {
	if set.ID == "" {
		return true
	}
	if s.ids == nil {
		s.ids = new(ids)
	}
	name, until := window.SettlementName(set.ID), set.Expires()
	if _, again := s.ids.find(now, name); again || set.Units < set.Request.Cost && until <= s.ids.floor {
		return false
	}
	s.ids.add(now, name, memo{until: until})
	return true
}

// charged remembers a call that was charged.
func (s *subject) charged(now int64, name window.Name, refusals uint64) {
	if s.ids == nil {
		s.ids = new(ids)
	}
	until := now + driver.RepeatTime.Microseconds()
	s.ids.add(now, name, memo{until, refusals})
	s.until = max(s.until, until)
}
