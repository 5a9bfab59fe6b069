// Package throttle keeps a log readable while every request fails.
package throttle

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Errors logs at most one error a second, with how many were not logged before. It is safe for concurrent
// use.
type Errors struct {
	// To gets what is logged. It must not be changed in use.
	To *slog.Logger

	last    atomic.Int64 // Unix nanoseconds
	skipped atomic.Int64
}

// Log logs an error, or counts it.
func (t *Errors) Log(message string, err error) {
	now, last := time.Now().UnixNano(), t.last.Load()
	if now-last < int64(time.Second) || !t.last.CompareAndSwap(last, now) {
		t.skipped.Add(1)
		return
	}
	t.To.Error(message, "error", err, "not_logged_before", t.skipped.Swap(0))
}
