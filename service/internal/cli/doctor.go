package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/doctor"
	"example.com/sash/service/internal/output"
)

// A checkup is the flags of sash doctor.
type checkup struct {
	redis        string
	budget       time.Duration
	strict, json bool
}

func (a *app) doctor() *cobra.Command {
	c := &checkup{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check how a Redis is set up for a limiter; exit 0 fine, 1 not",
		Long: `Check the Redis of a limiter: version, eviction, memory, persistence, replicas, clocks, Sentinels or
Cluster, every script on keys of its own, the latency of decisions, and the user's rights. Each
finding says what was seen and what to do.

  ok          as it should be
  unchecked   the user lacks the right, or there was no answer
  warn        a promise is weaker than it could be
  fail        a promise does not hold, or calls fail

The keys are those of sash serve in the same environment: see sash help redis.

The home of rules with scope: global has the same needs. Check it from each region, with the budget
that sash serve --home-budget has. A lease should last for four trips, each of the p99 that the
latency shows.

The last finding has the ACL line of a user with the rights that a limiter needs and no others. That
user may not read the configuration: run doctor as an administrator once, and as the limiter's user
in CI.

The exit code is 0 if nothing failed, 1 if something did (with --strict: a warning too), and 2 if
Redis does not answer or refuses the user.`,
		Example: `  sash doctor --redis redis://127.0.0.1:6379
  sash doctor --redis rediss://home.example.com --budget 1s
  sash doctor --strict --json      # in CI, with SASH_REDIS set`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), c) },
	}
	f := cmd.Flags()
	redisFlag(f, &c.redis)
	f.DurationVar(&c.budget, "budget", failover.DefaultBudget, "time that one decision may take, as sash serve --budget has it")
	f.BoolVar(&c.strict, "strict", false, "exit 1 for warnings too")
	jsonFlag(f, &c.json)
	return cmd
}

func (a *app) runDoctor(ctx context.Context, c *checkup) error {
	if c.budget <= 0 {
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", c.budget)
	}
	to, err := a.shared(c.redis)
	if err != nil {
		return err
	}
	defer to.close()
	findings, err := doctor.Run(ctx, to.client, to.prefix, c.budget)
	if err != nil {
		return to.explain(decide.Remedy(err))
	}
	count := make(map[doctor.Level]int)
	for _, f := range findings {
		count[f.Level]++
	}
	answer := map[string]any{
		"redis": to.address, "prefix": to.prefix, "findings": findings,
		"ok": count[doctor.OK], "unchecked": count[doctor.Unchecked], "warn": count[doctor.Warn], "fail": count[doctor.Fail],
	}
	err = output.Print(a.out, c.json, answer, func(t *output.Text) {
		t.Say("redis at %s, keys under %s*", to.address, to.prefix)
		for _, f := range findings {
			if f.Node != "" {
				f.Seen = f.Node + ": " + f.Seen
			}
			t.Say("%-9s  %-11s  %s", f.Level, f.Check, f.Seen)
			if f.Do != "" {
				t.Say("%-9s  %-11s  > %s", "", "", f.Do)
			}
		}
		t.Say("%d ok, %d unchecked, %d to think about, %d to repair", count[doctor.OK], count[doctor.Unchecked], count[doctor.Warn], count[doctor.Fail])
	})
	if err == nil && (count[doctor.Fail] > 0 || c.strict && count[doctor.Warn] > 0) {
		return errFound
	}
	return err
}
