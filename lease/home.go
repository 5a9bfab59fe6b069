package lease

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
)

// A home is what this process knows of the home store. While it is silent, one question at a time goes there, ever more
// seldom: others would wait for nothing.
type home struct {
	within time.Duration // the longest time to fetch a lease
	way    atomic.Int64  // how long the answer to an errand takes, in microseconds; 0 before the first
	direct chan struct{} // holds one for each call that has waited for leases in vain, while the home decides it

	mu     sync.Mutex
	silent int       // questions, one after the other, without an answer; guarded by mu, as all below
	cause  error     // of the last question without one, until one is answered
	ended  time.Time // when the last one that counts failed
	next   time.Time // when another may go
}

const (
	firstPause = 250 * time.Millisecond // after an errand that failed; twice as long after the next
	lastPause  = 4 * time.Second
	leastSlow  = 100 * time.Millisecond // a failure that comes earlier is an answer of the home
	mostDirect = 8                      // calls at once that the home decides since leases do not come: less than a client's pool
)

// measure counts how long an answer took: the measure rises quickly and falls slowly.
func (h *home) measure(took time.Duration) {
	way, this := h.way.Load(), took.Microseconds()
	switch {
	case way == 0:
		way = this
	case this > way:
		way += (this - way + 1) / 2
	default:
		way -= (way - this) / 8
	}
	h.way.Store(way)
}

// may reports whether a question may go to the home. If it has been silent, the next one may when this one has failed.
func (h *home) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent == 0 {
		return true
	}
	now := time.Now()
	if now.Before(h.next) {
		return false
	}
	h.next = now.Add(h.within)
	return true
}

// answered ends a silence.
func (h *home) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent, h.cause = 0, nil
}

// failed counts an errand that failed after a time, and returns the pause after it. A failure at once is no silence.
func (h *home) failed(cause error, took time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	if took < max(leastSlow, time.Duration(2*h.way.Load())*time.Microsecond) {
		return firstPause
	}
	now := time.Now()
	if h.silent > 0 && now.Add(-took).Before(h.ended) { // it waited together with the one that was counted
		return max(h.next.Sub(now), firstPause)
	}
	h.silent++
	h.ended = now
	pause := min(firstPause<<min(h.silent-1, 8), lastPause)
	h.next = now.Add(pause)
	return pause
}

// pause returns how long no question goes to the home.
func (h *home) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(time.Until(h.next), firstPause)
}

// down returns the error of a call that nobody asks the home about for now.
func (h *home) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		return fmt.Errorf("lease: the home store did not answer when it was last asked for a lease: %w", sash.ErrUnavailable)
	}
	return fmt.Errorf("lease: the home store did not answer: %w: %w", sash.ErrUnavailable, h.cause)
}

// slow returns the error of a call that has found no lease and no place among those that the home decides instead.
func (h *home) slow(longest time.Duration) error {
	return fmt.Errorf("lease: an errand to the home store takes %v, and leases of %v do not last until callers have them: use a longer lease, "+
		"of at least four trips to the home: %w", time.Duration(h.way.Load())*time.Microsecond, longest, sash.ErrUnavailable)
}
