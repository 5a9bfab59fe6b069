package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/doctor"
	"example.com/sash/service/internal/serve"
)

// A checkup is the flags of sash doctor.
type checkup struct {
	redis, config      string
	home               string
	budget, homeBudget time.Duration
	strict, json       bool
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

--home checks the home of rules with scope: global too, which has the same needs, over the way from
here: within --home-budget, and with --config whether the leases of the rules fit the way. Run it in
each region.

The last finding has the ACL line of a user with the rights that a limiter needs and no others. That
user may not read the configuration: run doctor as an administrator once, and as the limiter's user
in CI.

The exit code is 0 if nothing failed, 1 if something did (with --strict: a warning too), and 2 if
Redis does not answer or refuses the user.`,
		Example: `  sash doctor --redis redis://127.0.0.1:6379
  sash doctor --redis 10.0.0.7:6379 --home rediss://home.example.com --config limits.yaml
  sash doctor --strict --json      # in CI, with SASH_REDIS set`,
		Args: noAddress,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), c) },
	}
	f := cmd.Flags()
	redisFlag(f, &c.redis)
	f.DurationVar(&c.budget, "budget", failover.DefaultBudget, "time that one decision may take, as sash serve --budget has it")
	homeFlag(f, &c.home, ", to check as well")
	f.DurationVar(&c.homeBudget, "home-budget", serve.DefaultHomeBudget, "time that one decision of the home may take, as sash serve --home-budget has it")
	f.StringVar(&c.config, "config", "", "configuration `file` or directory, whose leases are compared with the way to the home")
	f.BoolVar(&c.strict, "strict", false, "exit 1 for warnings too")
	jsonFlag(f, &c.json)
	return cmd
}

func (a *app) runDoctor(ctx context.Context, c *checkup) error {
	c.home = cmp.Or(c.home, a.env(homeVariable))
	switch {
	case c.budget <= 0:
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", c.budget)
	case c.homeBudget <= 0:
		return fmt.Errorf("--home-budget %v: give a time above zero, such as 1s", c.homeBudget)
	case c.config != "" && c.home == "":
		return errors.New("--config: only leases of the home are compared with the configuration: give --home too")
	}
	to, err := a.shared(c.redis)
	if err != nil {
		return err
	}
	defer to.close()
	found, err := examine(ctx, to, doctor.Options{Prefix: to.prefix, Budget: c.budget})
	if err != nil {
		return err
	}
	all, answer := []*examined{found}, found.answer()
	if c.home != "" {
		home, err := c.examineHome(ctx, to.prefix)
		if err != nil {
			return err
		}
		all = append(all, home)
		answer["home"] = home.answer()
	}
	err = a.print(c.json, answer, func(t *text) {
		for _, e := range all {
			doctorText(t, e)
		}
	})
	for _, e := range all {
		if err == nil && (e.count[doctor.Fail] > 0 || c.strict && e.count[doctor.Warn] > 0) {
			return errFound
		}
	}
	return err
}

// An examined is a Redis with its findings.
type examined struct {
	what     string // redis or home
	to       *remote
	findings []doctor.Finding
	count    map[doctor.Level]int
}

func (e *examined) answer() map[string]any {
	return map[string]any{
		"redis": e.to.address, "prefix": e.to.prefix, "findings": e.findings,
		"ok": e.count[doctor.OK], "unchecked": e.count[doctor.Unchecked], "warn": e.count[doctor.Warn], "fail": e.count[doctor.Fail],
	}
}

func examine(ctx context.Context, to *remote, opts doctor.Options) (*examined, error) {
	e := &examined{what: "redis", to: to, count: make(map[doctor.Level]int)}
	var err error
	if e.findings, err = doctor.Run(ctx, to.client, opts); err != nil {
		return nil, to.explain(decide.Remedy(err))
	}
	for _, f := range e.findings {
		e.count[f.Level]++
	}
	return e, nil
}

// leases returns the leases of the configuration.
func (c *checkup) leases() ([]doctor.Lease, error) {
	if c.config == "" {
		return nil, nil
	}
	cfg, err := (&reading{}).load(c.config)
	if err != nil {
		return nil, err
	}
	var out []doctor.Lease
	for _, r := range cfg.Rules() {
		if r.Place.Global && r.Place.Lease > 0 {
			out = append(out, doctor.Lease{Rule: r.String(), Longest: r.Place.Lease})
		}
	}
	return out, nil
}

// examineHome checks the home.
func (c *checkup) examineHome(ctx context.Context, prefix string) (*examined, error) {
	leases, err := c.leases()
	if err != nil {
		return nil, err
	}
	to, err := connect(c.home, prefix)
	if err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	defer to.close()
	e, err := examine(ctx, to, doctor.Options{Prefix: prefix, Leases: leases, Budget: c.homeBudget, Home: true})
	if err != nil {
		return nil, fmt.Errorf("the home: %w", err)
	}
	e.what = "home"
	return e, nil
}

func doctorText(t *text, e *examined) {
	findings, count := e.findings, e.count
	t.say("%s at %s, keys under %s*", e.what, e.to.address, e.to.prefix)
	for _, f := range findings {
		if f.Node != "" {
			f.Seen = f.Node + ": " + f.Seen
		}
		t.say("%-9s  %-11s  %s", f.Level, f.Check, f.Seen)
		if f.Do != "" {
			t.say("%-9s  %-11s  > %s", "", "", f.Do)
		}
	}
	t.say("%d ok, %d unchecked, %d to think about, %d to repair", count[doctor.OK], count[doctor.Unchecked], count[doctor.Warn], count[doctor.Fail])
}
