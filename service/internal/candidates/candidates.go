// Package candidates counts and logs what limits that are tried out do, or would have done.
package candidates

import (
	"context"
	"log/slog"
	"sync/atomic"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
)

// logged is how many refusals are logged: the log must not grow with an attack. How many were not is said with the
// next one.
var logged = sash.PerSecond(5)

// Watch returns an observer that counts the units of each candidate under the name of its rule and ".candidate":
// all, those within it and over it, and as shadow_mode those over it that it did not refuse, because another limit
// was enforced. Those that only the candidate would have refused are logged, a few in any second, with keys that have
// values of requests only where keys says so.
func Watch(counted *stats.Registry, log *slog.Logger, keys bool) decide.Observer {
	limiter, err := sash.New(memstore.New(nil), nil, logged)
	if err != nil {
		panic(err) // the limit is right
	}
	var silent atomic.Int64
	return func(ctx context.Context, o *decide.Observation) {
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
			if res, err := limiter.Allow(ctx, "log"); err != nil || !res.Allowed {
				silent.Add(1)
				continue
			}
			to := log
			if keys {
				to = log.With("key", a.Key)
			}
			to.Info("a candidate would have refused what was allowed", "rule", c.Rule.String(),
				"units", c.Units, "limit", c.RefusedBy.Limit.Name, "retry_after", c.RefusedBy.RetryAfter, "not_logged", silent.Swap(0))
		}
	}
}
