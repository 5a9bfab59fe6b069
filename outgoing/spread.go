package outgoing

import (
	"sync"
	"time"
)

// spreads are by how much the ways of requests to each bucket differ: δ in docs/algorithms.md. An API counts a request
// when it arrives, so windows that are longer by δ at the store are never overrun at the API.
//
// A request's way ends between its charge and the first byte of the response. That time is the way and what the API and
// the way back take, so the spread of those times is at least that of the ways, as soon as a request has taken little
// of each.
type spreads struct {
	given time.Duration // zero to learn, negative for none

	mu   sync.Mutex
	seen *memory[string, *ways] // by key, guarded by mu
}

// Bounds of a learnt spread.
const (
	fewestWays    = 4                      // before as many requests the spread is unknown: a tenth of the window
	unknownMost   = time.Second            // and no more than this
	spreadLeast   = 100 * time.Millisecond // and no more than a fiftieth of the window: any process is late now and then
	spreadMost    = 2 * time.Second        // and no more than a quarter. A new connection whose first packet is lost takes one more
	spreadSteps   = 25                     // of the largest spread, so that few different windows reach the store
	waysKept      = time.Hour              // after which those of an unused bucket are unknown again
	waysInStretch = 64
)

func newSpreads(given time.Duration) *spreads {
	forgotten := func(w *ways, now time.Time) bool { return now.Sub(w.last) > waysKept }
	return &spreads{given: given, seen: newMemory[string](forgotten)}
}

// took records what a request took from its charge to the response, and whether it had a new connection.
func (s *spreads) took(key string, d time.Duration, fresh bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.seen.get(key, now)
	if !ok {
		w = new(ways)
		s.seen.set(key, w, now)
	}
	w.add(d, fresh, now)
}

// of returns by how much a window of a bucket has to be longer at the store.
func (s *spreads) of(key string, window time.Duration) time.Duration {
	if s.given != 0 {
		return max(s.given, 0)
	}
	unknown := min(window/10, unknownMost)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.last(key)
	d, known := w.spread()
	if !known {
		return unknown
	}
	d = max(d, min(window/50, spreadLeast))
	most := min(window/4, spreadMost)
	step := max(most/spreadSteps, time.Microsecond).Truncate(time.Microsecond)
	return min((d+step-1)/step*step, most.Truncate(time.Microsecond))
}

// longest returns the longest way that a bucket's last requests have taken, as a power of two of milliseconds, so that few
// different windows reach the store. It is zero if that is less than a millisecond, or unknown.
func (s *spreads) longest(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := s.last(key).all().max
	if longest < time.Millisecond {
		return 0
	}
	d := time.Millisecond
	for d < longest {
		d *= 2
	}
	return d
}

// last returns the ways of a bucket's last requests.
func (s *spreads) last(key string) *ways {
	if w, ok := s.seen.get(key, time.Now()); ok {
		return w
	}
	return new(ways)
}

// ways are the shortest and the longest of a bucket's last requests. Those with new connections are longer and rarer,
// and are kept apart, so that many others do not push them out.
type ways struct {
	warm, fresh [2]stretch // the current stretch and the one before
	last        time.Time
}

// A stretch is up to waysInStretch requests in a row.
type stretch struct {
	n        int
	min, max time.Duration
}

func (w *ways) add(d time.Duration, fresh bool, now time.Time) {
	stretches := &w.warm
	if fresh {
		stretches = &w.fresh
	}
	if stretches[0].n == waysInStretch {
		stretches[1], stretches[0] = stretches[0], stretch{}
	}
	b := &stretches[0]
	if b.n == 0 {
		b.min, b.max = d, d
	}
	b.n, b.min, b.max = b.n+1, min(b.min, d), max(b.max, d)
	w.last = now
}

// all returns the last requests as one stretch.
func (w *ways) all() (all stretch) {
	for _, s := range [...]stretch{w.warm[0], w.warm[1], w.fresh[0], w.fresh[1]} {
		switch {
		case s.n == 0:
		case all.n == 0:
			all = s
		default:
			all = stretch{all.n + s.n, min(all.min, s.min), max(all.max, s.max)}
		}
	}
	return all
}

// spread returns the difference of the longest and the shortest way. The fewer there were, the more the next may exceed
// them, so it is longer by 8/n: the next ones of n equally distributed ways are then within it.
func (w *ways) spread() (d time.Duration, known bool) {
	all := w.all()
	if all.n < fewestWays {
		return 0, false
	}
	d = all.max - all.min
	return d + 8*d/time.Duration(all.n), true
}
