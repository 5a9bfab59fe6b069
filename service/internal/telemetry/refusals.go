package telemetry

import (
	"context"
	"log/slog"
	"sync"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/throttle"
)

// maxRules bounds the rules whose refusals are told apart.
const maxRules = 10_000

// refusals logs refusals: of each rule the first in each second, with how many were not logged before it.
type refusals struct {
	log  *slog.Logger
	keys bool // those of all rules, and not only where detailed_metric asks for it

	mu    sync.RWMutex
	rules map[[2]string]*throttle.Log // guarded by mu
}

func (r *refusals) observe(ctx context.Context, o *decide.Observation) {
	if o.Outcome() == decide.Invalid || !r.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for i := range o.Answers {
		if outcome := o.OutcomeOf(i); outcome == decide.Refused || outcome == decide.Shadowed {
			r.tell(ctx, o, i)
		}
	}
}

func (r *refusals) tell(ctx context.Context, o *decide.Observation, i int) {
	domain, rule := o.Rule(i)
	skipped, ok := r.of(domain, rule).Allow(o.Began.Add(o.Took))
	if !ok {
		return
	}
	a := &o.Answers[i]
	attrs := []slog.Attr{
		slog.String("domain", domain), slog.String("rule", rule), slog.String("limit", o.RefusedBy(i)), slog.Int64("units", a.Units),
		slog.Float64("retry_after", a.RefusedBy.RetryAfter.Seconds()), slog.String("source", o.OriginOf(i).String()),
	}
	if a.Cause != nil {
		attrs = append(attrs, slog.String("cause", degrade.Cause(a.Cause)))
	}
	if o.OutcomeOf(i) == decide.Shadowed {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	if r.keys || a.Rule != nil && a.Rule.Detailed {
		attrs = append(attrs, slog.String("key", a.Key))
	}
	attrs = append(attrs, slog.Int64("not_logged_before", skipped))
	r.log.LogAttrs(ctx, slog.LevelInfo, "refused", attrs...)
}

func (r *refusals) of(domain, rule string) *throttle.Log {
	id := [2]string{domain, rule}
	r.mu.RLock()
	seen := r.rules[id]
	r.mu.RUnlock()
	if seen != nil {
		return seen
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rules) >= maxRules && r.rules[id] == nil {
		id = [2]string{}
	}
	if seen = r.rules[id]; seen == nil {
		seen = new(throttle.Log)
		r.rules[id] = seen
	}
	return seen
}
