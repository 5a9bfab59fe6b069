package stats

import (
	"maps"
	"sync"
)

// A Bounded is a map that makes the value of a key on first use. It holds a bounded number of keys; those that come
// after share one value. It is safe for concurrent use. Make it with NewBounded.
type Bounded[K comparable, V any] struct {
	most   int
	shared K
	clone  func(K) K

	mu     sync.RWMutex
	values map[K]*V // guarded by mu
}

// NewBounded returns a map that holds most keys, and beyond these the key shared, which stands for all others. Clone
// copies a key before the map keeps it, so that the map does not hold on to the memory of a request.
func NewBounded[K comparable, V any](most int, shared K, clone func(K) K) *Bounded[K, V] {
	return &Bounded[K, V]{most: most, shared: shared, clone: clone, values: make(map[K]*V)}
}

// Get returns the value of a key, which is the zero value at first.
func (b *Bounded[K, V]) Get(key K) *V {
	b.mu.RLock()
	v := b.values[key]
	b.mu.RUnlock()
	if v != nil {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.values) >= b.most && b.values[key] == nil {
		key = b.shared
	}
	if v = b.values[key]; v == nil {
		v = new(V)
		b.values[b.clone(key)] = v
	}
	return v
}

// All returns a copy of the map, so that a slow reader does not hold up those who count.
func (b *Bounded[K, V]) All() map[K]*V {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.values)
}
