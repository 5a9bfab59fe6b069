package observe

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"example.com/sash"
)

// logEvery is the least time between two lines of a prefix and an outcome, of which mostLines are remembered.
const (
	logEvery  = time.Second
	mostLines = 1000
)

// Log returns an observer that logs refusals at level info, and at level warn calls that the store did not decide: errors,
// and calls that were admitted without being counted. Of each prefix and outcome it logs one a second, with the number of
// those that it did not log before; prefixes beyond a thousand have one a second together. A caller's context that ended is
// no failure of the store, and is logged at level debug, like admissions and the refusals of callers who wait. Where the
// logger has level debug, every decision is logged.
//
// A nil logger is slog.Default, as it is at each call.
func Log(logger *slog.Logger) sash.Observer {
	return &logs{logger: logger, last: make(map[line]*written)}
}

type logs struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   map[line]*written // guarded by mu; mostLines, and one for each outcome of all other prefixes
}

type line struct{ prefix, outcome string }

type written struct {
	at      time.Time
	skipped int64
}

// Observe implements [sash.Observer].
func (l *logs) Observe(ctx context.Context, d sash.Decision) {
	logger := cmp.Or(l.logger, slog.Default())
	what := outcome(&d)
	level := slog.LevelDebug
	switch {
	case what == refused && !d.Waiting:
		level = slog.LevelInfo
	case what == uncounted, what == failed && errorType(d.Err) == "unavailable":
		level = slog.LevelWarn
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	skipped := int64(0)
	if !logger.Enabled(ctx, slog.LevelDebug) {
		var due bool
		if skipped, due = l.due(line{d.Prefix, what}, d.Began.Add(d.Duration)); !due {
			return
		}
	}
	attrs := []slog.Attr{slog.String("prefix", d.Prefix), slog.Int64("units", d.Cost), slog.Duration("duration", d.Duration)}
	cause := d.Err
	if cause == nil {
		attrs = append(attrs, slog.String("source", d.Result.Source.String()))
		cause = d.Result.Cause
	}
	if by, ok := d.Result.RefusedBy(); ok {
		attrs = append(attrs, slog.String("limit", by.Limit.Name), slog.Float64("retry_after", d.Result.RetryAfter.Seconds()))
	}
	if d.Waiting {
		attrs = append(attrs, slog.Bool("waiting", true))
	}
	if cause != nil {
		attrs = append(attrs, slog.Any("error", cause))
	}
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("not_logged_before", skipped))
	}
	logger.LogAttrs(ctx, level, what, attrs...)
}

// due reports whether a line can be logged at an instant, and how many were skipped before it.
func (l *logs) due(of line, now time.Time) (skipped int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[of] == nil && len(l.last) >= mostLines {
		of.prefix = "" // prefixes are made of something that has many values
	}
	last := l.last[of]
	if last == nil {
		last = new(written)
		l.last[of] = last
	}
	if now.Sub(last.at) < logEvery {
		last.skipped++
		return 0, false
	}
	skipped = last.skipped
	*last = written{at: now}
	return skipped, true
}
