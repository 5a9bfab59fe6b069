package outgoing

import "time"

// The bounds of a memory. It sweeps when it has grown to memorySweep keys or, later, to twice the size after the
// last sweep. At memoryMost keys it forgets half, so its size is bounded whatever the number of buckets.
const (
	memorySweep = 1024
	memoryMost  = 1 << 16
)

// A memory caches a value for each key until the value is over. What it forgets early is in the store, or is
// learnt again. It is not safe for concurrent use.
type memory[K comparable, V any] struct {
	over  func(V, time.Time) bool
	all   map[K]V
	sweep int // the size of the next sweep
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
