// Package throttle limits how often a message is logged, so that a log stays readable while every request fails.
package throttle

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A Log logs one kind of message, at most one line in each Every, and counts the lines that it skips. Callers
// do not wait for each other, so a slow log delays only the callers that write to it. The zero value logs one
// line a second to slog.Default. It is safe for concurrent use. Do not change its fields after the first line.
type Log struct {
	// To receives the lines. Nil is slog.Default.
	To *slog.Logger
	// Every is the period. Zero is one second.
	Every time.Duration

	next    atomic.Int64 // Unix nanoseconds: the time of the next line at the earliest
	skipped atomic.Int64
}

// Log logs a message with args and the number of lines skipped before it, as not_logged_before, or skips it.
func (l *Log) Log(level slog.Level, message string, args ...any) {
	if skipped, ok := l.Allow(time.Now()); ok {
		cmp.Or(l.To, slog.Default()).Log(context.Background(), level, message, append(args, "not_logged_before", skipped)...)
	}
}

// Allow reports whether the caller may log a line now, and if so how many were skipped since the last one.
func (l *Log) Allow(now time.Time) (skipped int64, ok bool) {
	every, at, next := int64(cmp.Or(l.Every, time.Second)), now.UnixNano(), l.next.Load()
	free := at >= next || next > at+every // or the clock went back
	if free && l.next.CompareAndSwap(next, at+every) {
		return l.skipped.Swap(0), true
	}
	l.skipped.Add(1)
	return 0, false
}

// Repeat calls a function until the context ends. After each call it waits for the pause that the call returned.
func Repeat(ctx context.Context, do func() (pause time.Duration)) {
	for ctx.Err() == nil {
		pause := do()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
