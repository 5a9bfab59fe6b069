package memstore

import (
	"container/heap"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/internal/window"
)

// IDs are the calls and settlements that a subject remembers. The zero value and nil are none.
type ids struct {
	known map[window.Name]memo
	ends  ends   // of all known IDs
	added uint64 // the number of IDs ever added
	// floor is the latest end of a settlement forgotten before its end. A settlement that ends no later may have been applied.
	floor int64
}

type memo struct {
	until    int64
	refusals uint64
}

func (i *ids) find(now int64, name window.Name) (memo, bool) {
	if i == nil {
		return memo{}, false
	}
	m, ok := i.known[name]
	return m, ok && m.until > now
}

// add remembers an ID that is unknown or has expired. It forgets a few expired IDs, and if there are too many the ID that
// ends first.
func (i *ids) add(now int64, name window.Name, m memo) {
	for n := 0; len(i.ends) > 0 && i.ends[0].until <= now; n++ {
		if _, again := i.known[name]; n >= 4 && !again {
			break
		}
		i.drop()
	}
	if len(i.ends) >= threshold.IDs {
		if first := i.ends[0]; first.name.Settles() {
			i.floor = max(i.floor, first.until)
		}
		i.drop()
	}
	if i.known == nil {
		i.known = make(map[window.Name]memo)
	}
	i.known[name] = m
	i.added++
	heap.Push(&i.ends, ending{name, m.until, i.added})
}

// Bytes of the IDs that a subject remembers: those of an empty map, and of each ID in the map and in ends.
const (
	idsBytes = 288
	idBytes  = 72
)

func (i *ids) bytes() int {
	if i == nil {
		return 0
	}
	return idsBytes + idBytes*cap(i.ends)
}

// grows returns about how many bytes a further ID adds.
func (i *ids) grows() int {
	switch {
	case i == nil:
		return idsBytes + idBytes
	case len(i.ends) < cap(i.ends):
		return 0
	}
	return idBytes * (cap(i.ends)/4 + 1)
}

func (i *ids) drop() { delete(i.known, heap.Pop(&i.ends).(ending).name) }

type ending struct {
	name  window.Name
	until int64
	nth   uint64 // the number of the ID: of two that end together, the older one is first
}

// ends is a heap of endings, the first on top.
type ends []ending

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return e[i].until < e[j].until || e[i].until == e[j].until && e[i].nth < e[j].nth
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *ends) Push(x any) { *e = append(*e, x.(ending)) }

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// first reports whether a settlement is applied for the first time, and remembers it. If it cannot know, it chooses the
// answer that admits less.
func (s *subject) first(now int64, set *driver.Settlement) bool {
	if set.ID == "" || s.applied(now, set) {
		return set.ID == ""
	}
	if s.ids == nil {
		s.ids = new(ids)
	}
	s.ids.add(now, window.SettlementName(set.ID), memo{until: set.Expires()})
	return true
}

// applied reports whether a settlement may have been applied.
func (s *subject) applied(now int64, set *driver.Settlement) bool {
	if set.ID == "" || s.ids == nil {
		return false
	}
	_, again := s.ids.find(now, window.SettlementName(set.ID))
	return again || set.Units < set.Cost && set.Expires() <= s.ids.floor
}

// charged remembers a call that was charged at an instant, which lies ahead if it is a booking.
func (s *subject) charged(now, at int64, name window.Name, refusals uint64) {
	if s.ids == nil {
		s.ids = new(ids)
	}
	until := at + driver.RepeatTime.Microseconds()
	s.ids.add(now, name, memo{until, refusals})
	s.until = max(s.until, until)
}
