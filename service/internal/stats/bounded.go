package stats

import (
	"maps"
	"sync"
)

// A Bounded is a map that makes the value of a key on first use. Reserved keys always have a place. Of others, guests,
// it holds a bounded number; those that come after share one value. It is safe for concurrent use. Make it with
// NewBounded.
type Bounded[K comparable, V any] struct {
	most   int
	shared K
	keep   func(K) K

	mu       sync.RWMutex
	values   map[K]*V       // guarded by mu
	reserved map[K]struct{} // guarded by mu
	guests   int            // guarded by mu: of values, without shared
}

// NewBounded returns a map that holds most guests, and beyond these the key shared, which stands for all others. Keep
// returns the form in which the map keeps a guest: a copy, so that the map does not hold on to the memory of a request,
// or shared for a key that it does not keep.
func NewBounded[K comparable, V any](most int, shared K, keep func(K) K) *Bounded[K, V] {
	return &Bounded[K, V]{most: most, shared: shared, keep: keep, values: make(map[K]*V)}
}

// Reserve reserves places for these keys, in place of those reserved before, whose values it drops.
func (b *Bounded[K, V]) Reserve(keys []K) {
	next := make(map[K]struct{})
	for _, key := range keys {
		next[key] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	guests := 0
	for key := range b.values {
		_, was := b.reserved[key]
		_, is := next[key]
		switch {
		case is || key == b.shared:
		case was:
			delete(b.values, key)
		default:
			guests++
		}
	}
	b.reserved, b.guests = next, guests
}

// Get returns the value of a key, which is the zero value at first.
func (b *Bounded[K, V]) Get(key K) *V {
	b.mu.RLock()
	v := b.values[key]
	if v == nil && b.guests >= b.most {
		if _, reserved := b.reserved[key]; !reserved {
			v = b.values[b.shared]
		}
	}
	b.mu.RUnlock()
	if v != nil {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, reserved := b.reserved[key]
	guest := false
	switch {
	case reserved || key == b.shared:
	case b.guests >= b.most:
		key = b.shared
	default:
		key = b.keep(key)
		_, reserved = b.reserved[key]
		guest = !reserved && key != b.shared
	}
	if v = b.values[key]; v == nil {
		v = new(V)
		b.values[key] = v
		if guest {
			b.guests++
		}
	}
	return v
}

// All returns a copy of the map, so that a slow reader does not hold up those who count.
func (b *Bounded[K, V]) All() map[K]*V {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.values)
}
