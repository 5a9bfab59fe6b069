package stats

import (
	"container/heap"
	"math"
)

// A sketch counts the heaviest of many keys in bounded memory by the space-saving algorithm: it has a fixed number of
// counters, and a key without one takes over the smallest, with its count.
//
// So no count is too low, none is too high by more than its error, and every key with more than the sum of all
// weights divided by the number of counters has a counter.
type sketch[T any] struct {
	most     int
	counters map[string]*counter[T]
	heap     byCount[T] // the smallest first
}

// A counter is what a sketch knows of one key.
type counter[T any] struct {
	key   string
	count int64
	above int64 // the count may be too high by this much
	about T
	at    int // in the heap
}

func newSketch[T any](most int) *sketch[T] {
	return &sketch[T]{most: most, counters: make(map[string]*counter[T])}
}

// add adds weight to the count of a key. It returns the key's counter, and whether the key is new to it.
func (s *sketch[T]) add(key string, weight int64) (c *counter[T], taken bool) {
	c = s.counters[key]
	switch {
	case c != nil:
		c.count = plus(c.count, weight)
		heap.Fix(&s.heap, c.at)
		return c, false
	case len(s.heap) < s.most:
		c = &counter[T]{key: key, count: weight}
		heap.Push(&s.heap, c)
	default:
		c = s.heap[0]
		delete(s.counters, c.key)
		c.key, c.above = key, c.count
		c.count = plus(c.count, weight)
		heap.Fix(&s.heap, 0)
	}
	s.counters[key] = c
	return c, true
}

// plus adds numbers that are not negative, and stops at the largest one, because requests choose the weights.
func plus(x, y int64) int64 {
	if x > math.MaxInt64-y {
		return math.MaxInt64
	}
	return x + y
}

// byCount is a heap of counters.
type byCount[T any] []*counter[T]

func (h byCount[T]) Len() int           { return len(h) }
func (h byCount[T]) Less(i, j int) bool { return h[i].count < h[j].count }

func (h byCount[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *byCount[T]) Push(x any) {
	c := x.(*counter[T])
	c.at = len(*h)
	*h = append(*h, c)
}

// Pop implements heap.Interface. A sketch never removes a counter.
func (h *byCount[T]) Pop() any {
	all := *h
	last := all[len(all)-1]
	*h = all[:len(all)-1]
	return last
}
