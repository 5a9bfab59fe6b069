package window

import "iter"

// Entries yields the time and units of each entry, the oldest first, including entries that no longer count. The log must
// not change meanwhile.
func (l *Log) Entries() iter.Seq2[int64, int64] {
	return func(yield func(at, units int64) bool) {
		for p := l.lo; p < l.head; p++ {
			if e := l.slot(p); !yield(e.at, int64(e.sum-l.before(p))) {
				return
			}
		}
	}
}

// Slots returns how many entries the ring has room for.
func (l *Log) Slots() int { return len(l.ring) }
