// Package candidates counts and logs what limits that are tried out do, or would have done.
package candidates

import (
	"context"
	"log/slog"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// Watch returns an observer that counts the units of each candidate under the name of its rule and ".candidate":
// all, those within it and over it, and as shadow_mode those over it that it did not refuse, because another limit
// was enforced. Those that only the candidate would have refused are logged, a few in any second, with keys that have
// values of requests only where keys says so.
func Watch(counted *stats.Registry, log *slog.Logger, keys bool) decide.Observer {
	logged := throttle.Log{Burst: 5}
	return func(_ context.Context, o *decide.Observation) {
		if o.Err != nil {
			return
		}
		for i := range o.Answers {
			a := &o.Answers[i]
			c := a.Candidate
			if c == nil || c.Units <= 0 {
				continue
			}
			rule, units := counted.Rule(c.Metric), uint64(min(c.Units, sash.MaxUnits))
			rule.Total.Add(units)
			if !c.Refused {
				rule.Within.Add(units)
				continue
			}
			rule.Over.Add(units)
			if c.Enforced {
				continue
			}
			rule.Shadow.Add(units)
			if a.Refused {
				continue // it was refused anyway
			}
			skipped, ok := logged.Allow(time.Now())
			if !ok {
				continue
			}
			to := log
			if keys {
				to = log.With("key", a.Key)
			}
			to.Info("a candidate would have refused what was allowed", "rule", c.Rule.String(),
				"units", c.Units, "limit", c.RefusedBy.Limit.Name, "retry_after", c.RefusedBy.RetryAfter, "not_logged_before", skipped)
		}
	}
}
