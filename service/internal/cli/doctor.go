package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/service/internal/doctor"
	"example.com/sash/service/internal/redisclient"
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
		Short: "Look at a Redis and say what is wrong for a limiter; exit 0 fine, 1 not",
		Long: `Look at the Redis that a limiter uses: version, eviction, memory, persistence, replicas, clocks, Sentinels or
Cluster, every script on keys of its own, the latency of decisions, and what the user may do. Each finding
says what was seen and what to do.

  ok          as it should be
  unchecked   the user may not look, or there was no answer
  warn        a promise is weaker than it could be
  fail        a promise does not hold, or calls fail

The last finding has the ACL line of a user who may do what a limiter needs and nothing else. Such a user
may not ask for the configuration: run doctor as an administrator once, and as the limiter's user in CI.

The exit code is 0 when nothing failed, 1 when something did (with --strict: also for a warning), and 2
when Redis does not answer or does not let the user in.`,
		Example: `  sash doctor --redis redis://127.0.0.1:6379
  sash doctor --strict --json      # in CI, with SASH_REDIS set`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.redis, "redis", "", redisUsage+" (default: the environment's "+redisVariable+")")
	f.DurationVar(&c.budget, "budget", failover.DefaultBudget, "the time that one decision may take: that of sash serve --budget")
	f.BoolVar(&c.strict, "strict", false, "exit 1 for warnings too")
	f.BoolVar(&c.json, "json", false, "answer in JSON")
	return cmd
}

func (a *app) runDoctor(ctx context.Context, c *checkup) error {
	if c.budget <= 0 {
		return fmt.Errorf("--budget %v: it is a time above zero, such as 50ms", c.budget)
	}
	to, err := a.shared(c.redis)
	if err != nil {
		return err
	}
	defer to.close()
	client, err := redisclient.Inspect(a.redisURL(c.redis))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	findings, err := doctor.Run(ctx, a.redisURL(c.redis), client, doctor.Options{Budget: c.budget})
	if err != nil {
		return to.explain(redisclient.Remedy(err))
	}
	count := make(map[doctor.Level]int)
	for _, f := range findings {
		count[f.Level]++
	}
	if c.json {
		err = writeJSON(a.out, map[string]any{"redis": to.address, "findings": findings, "ok": count[doctor.OK], "unchecked": count[doctor.Unchecked], "warn": count[doctor.Warn], "fail": count[doctor.Fail]})
	} else {
		err = a.doctorText(to.address, findings, count)
	}
	if err == nil && (count[doctor.Fail] > 0 || c.strict && count[doctor.Warn] > 0) {
		return errFound
	}
	return err
}

func (a *app) doctorText(address string, findings []doctor.Finding, count map[doctor.Level]int) error {
	w := &lines{to: a.out}
	w.say("redis at %s", address)
	for _, f := range findings {
		if f.Node != "" {
			f.Seen = f.Node + ": " + f.Seen
		}
		w.say("%-9s  %-11s  %s", f.Level, f.Check, f.Seen)
		if f.Do != "" {
			w.say("%-9s  %-11s  > %s", "", "", f.Do)
		}
	}
	w.say("%d ok, %d unchecked, %d to think about, %d to repair", count[doctor.OK], count[doctor.Unchecked], count[doctor.Warn], count[doctor.Fail])
	return w.err
}
