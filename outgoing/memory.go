package outgoing

import "time"

// The bounds of a memory: it looks for what is over when it has grown to memorySweep keys or, later, to twice
// what it kept, and forgets half when it has memoryMost, so that no number of buckets fills the process.
const (
	memorySweep = 1024
	memoryMost  = 1 << 16
)

// A memory holds what is known of keys until it is over. It is a cache: what it forgets early is in the
// store, or is learnt again. It is not safe for concurrent use.
type memory[K comparable, V any] struct {
	over  func(V, time.Time) bool
	all   map[K]V
	sweep int // the size at which to look for what is over
}

func newMemory[K comparable, V any](over func(V, time.Time) bool) *memory[K, V] {
	return &memory[K, V]{over: over, all: make(map[K]V), sweep: memorySweep}
}

func (m *memory[K, V]) get(key K) (V, bool) {
	v, ok := m.all[key]
	return v, ok
}

func (m *memory[K, V]) set(key K, value V, now time.Time) {
	m.all[key] = value
	if len(m.all) < m.sweep {
		return
	}
	for k, v := range m.all {
		if m.over(v, now) {
			delete(m.all, k)
		}
	}
	for k := range m.all {
		if len(m.all) <= memoryMost/2 {
			break
		}
		if k != key {
			delete(m.all, k)
		}
	}
	m.sweep = max(memorySweep, 2*len(m.all))
}
