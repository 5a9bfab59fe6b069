package telemetry

import (
	"context"
	"log/slog"
	"time"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/throttle"
)

// candidates logs the requests that only a rule's candidate would have refused, up to five a second.
type candidates struct {
	log      *slog.Logger
	keys     bool // log keys, which contain values of requests
	throttle throttle.Log
}

func newCandidates(log *slog.Logger, keys bool) *candidates {
	return &candidates{log: log, keys: keys, throttle: throttle.Log{Burst: 5}}
}

func (c *candidates) observe(ctx context.Context, o *decide.Observation) {
	if o.Err != nil {
		return
	}
	for i := range o.Answers {
		a := &o.Answers[i]
		would := a.Candidate
		if would == nil || would.Cost <= 0 || !would.Refused || would.Enforced || a.Refused {
			continue
		}
		skipped, ok := c.throttle.Allow(time.Now())
		if !ok {
			continue
		}
		attrs := []slog.Attr{
			slog.String("rule", would.Rule.String()), slog.Int64("units", would.Cost), slog.String("limit", would.RefusedBy.Limit.Name),
			slog.Duration("retry_after", would.RefusedBy.RetryAfter), slog.Int64("not_logged_before", skipped),
		}
		if c.keys {
			attrs = append(attrs, slog.String("key", a.Key))
		}
		c.log.LogAttrs(ctx, slog.LevelInfo, "a candidate would have refused what was allowed", attrs...)
	}
}
