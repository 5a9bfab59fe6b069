package telemetry

import (
	"context"
	"log/slog"
	"strings"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// maxRules is the most rules whose refusals are throttled apart. Others share one throttle.
const maxRules = 10_000

// refusals logs refusals, of each rule one a second.
type refusals struct {
	log   *slog.Logger
	keys  bool // log the keys of all rules; otherwise only those of rules with detailed_metric
	rules *stats.Bounded[ruleID, throttle.Log]
}

// A ruleID is the domain and the rule of decide.Observation.Rule.
type ruleID struct{ domain, rule string }

func newRefusals(log *slog.Logger, keys bool) *refusals {
	clone := func(id ruleID) ruleID { return ruleID{strings.Clone(id.domain), strings.Clone(id.rule)} }
	return &refusals{log: log, keys: keys, rules: stats.NewBounded[ruleID, throttle.Log](maxRules, ruleID{}, clone)}
}

func (r *refusals) observe(ctx context.Context, o *decide.Observation) {
	if o.Outcome() == decide.Invalid || !r.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for i := range o.Answers {
		if outcome := o.OutcomeOf(i); outcome == decide.Refused || outcome == decide.Shadowed {
			r.logPart(ctx, o, i)
		}
	}
}

func (r *refusals) logPart(ctx context.Context, o *decide.Observation, i int) {
	domain, rule := o.Rule(i)
	skipped, ok := r.rules.Get(ruleID{domain, rule}).Allow(o.Began.Add(o.Took))
	if !ok {
		return
	}
	a := &o.Answers[i]
	attrs := []slog.Attr{
		slog.String("domain", domain), slog.String("rule", rule), slog.String("limit", o.RefusedBy(i)), slog.Int64("units", a.Cost),
		slog.Float64("retry_after", a.RefusedBy.RetryAfter.Seconds()), slog.String("source", o.OriginOf(i).String()),
	}
	if a.Cause != nil {
		attrs = append(attrs, slog.String("cause", decide.Cause(a.Cause)))
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
