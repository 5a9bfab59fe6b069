package lease

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
)

// A home is what this process knows of the home store.
type home struct {
	way    atomic.Int64 // how long an errand takes, in microseconds
	mu     sync.Mutex
	failed int   // errands in a row; guarded by mu
	cause  error // guarded by mu
}

const (
	firstPause = 250 * time.Millisecond // after an errand that failed; twice as long after the next
	lastPause  = 4 * time.Second
)

// measure counts how long an errand took: the measure rises quickly and falls slowly.
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

// answered ends a series of failures.
func (h *home) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.cause = 0, nil
}

// fails counts a failure and returns the pause after it.
func (h *home) fails(cause error) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed++
	h.cause = cause
	return min(firstPause<<min(h.failed-1, 8), lastPause)
}

// down returns the error of a call that nobody asks the home about for now.
func (h *home) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		return fmt.Errorf("lease: the home store did not answer another process of this region: %w", sash.ErrUnavailable)
	}
	return fmt.Errorf("lease: the home store did not answer: %w: %w", sash.ErrUnavailable, h.cause)
}
