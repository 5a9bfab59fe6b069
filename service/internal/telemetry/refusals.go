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

// refusals logs refusals, of each rule and of each candidate one a second.
type refusals struct {
	log   *slog.Logger
	all   bool // log the refusals of rules, and not only those of candidates that did not bind
	keys  bool // log the keys of all rules; otherwise only those of rules with detailed_metric
	rules *stats.Bounded[string, throttle.Log]
}

func newRefusals(log *slog.Logger, all, keys bool) *refusals {
	return &refusals{log: log, all: all, keys: keys, rules: stats.NewBounded[string, throttle.Log](maxRules, "", strings.Clone)}
}

func (r *refusals) observe(ctx context.Context, o *decide.Observation) {
	if o.Outcome() == decide.Invalid || !r.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for i := range o.Answers {
		a := &o.Answers[i]
		if outcome := o.OutcomeOf(i); r.all && (outcome == decide.Refused || outcome == decide.Shadowed) {
			r.logPart(ctx, o, i)
		}
		if c := a.Candidate; o.Err == nil && c != nil && c.Cost > 0 && c.Refused && !c.Enforced && !a.Refused {
			r.write(ctx, o, i, "a candidate would have refused what was allowed", c.RefusedBy.Limit.Name,
				slog.Float64("retry_after", c.RefusedBy.RetryAfter.Seconds()))
		}
	}
}

func (r *refusals) logPart(ctx context.Context, o *decide.Observation, i int) {
	a := &o.Answers[i]
	attrs := []slog.Attr{
		slog.Float64("retry_after", a.RefusedBy.RetryAfter.Seconds()), slog.String("source", o.OriginOf(i).String()),
	}
	if a.Cause != nil {
		attrs = append(attrs, slog.String("cause", decide.Cause(a.Cause)))
	}
	if o.OutcomeOf(i) == decide.Shadowed {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	r.write(ctx, o, i, "refused", o.RefusedBy(i), attrs...)
}

// write writes the line of part i, unless there was one of its rule with the same text less than a second ago.
func (r *refusals) write(ctx context.Context, o *decide.Observation, i int, text, limit string, more ...slog.Attr) {
	a := &o.Answers[i]
	domain, rule := o.Rule(i)
	skipped, ok := r.rules.Get(text + " " + domain + " " + rule).Allow(o.Began.Add(o.Took))
	if !ok {
		return
	}
	attrs := append([]slog.Attr{
		slog.String("domain", domain), slog.String("rule", rule), slog.String("limit", limit), slog.Int64("units", a.Cost),
	}, more...)
	if r.keys || a.Rule != nil && a.Rule.Detailed {
		attrs = append(attrs, slog.String("key", a.Key))
	}
	r.log.LogAttrs(ctx, slog.LevelInfo, text, append(attrs, slog.Int64("not_logged_before", skipped))...)
}
