package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/doctor"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/serve"
)

// A checkup is the flags of sash doctor.
type checkup struct {
	redis, config      string
	homes              []string
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
	homesFlag(f, &c.homes, ", to check as well")
	f.DurationVar(&c.homeBudget, "home-budget", serve.DefaultHomeBudget, "time that one decision of the home may take, as sash serve --home-budget has it")
	f.StringVar(&c.config, "config", "", "configuration `file` or directory, whose leases are compared with the way to the home")
	f.BoolVar(&c.strict, "strict", false, "exit 1 for warnings too")
	jsonFlag(f, &c.json)
	return cmd
}

func (a *app) runDoctor(ctx context.Context, c *checkup) error {
	homes, err := a.homes(c.homes)
	switch {
	case err != nil:
		return err
	case c.budget <= 0:
		return fmt.Errorf("--budget %v: give a time above zero, such as 50ms", c.budget)
	case c.homeBudget <= 0:
		return fmt.Errorf("--home-budget %v: give a time above zero, such as 1s", c.homeBudget)
	case c.config != "" && len(homes) == 0:
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
	leases, err := c.leases(homes)
	if err != nil {
		return err
	}
	answers := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(homes)) {
		home, err := c.examineHome(ctx, name, homes[name], doctor.Options{Prefix: to.prefix, Leases: leases[homes[name]]})
		if err != nil {
			return err
		}
		all = append(all, home)
		answers[name] = home.answer()
		answer["home"] = answers[name]
	}
	if len(homes) > 1 {
		delete(answer, "home")
		answer["homes"] = answers
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
	what     string // redis, home, or home with its name
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
		return nil, to.explain(redisclient.Remedy(err))
	}
	for _, f := range e.findings {
		e.count[f.Level]++
	}
	return e, nil
}

// leases returns the leases of the configuration by the URL of their home.
func (c *checkup) leases(homes config.Homes) (map[string][]doctor.Lease, error) {
	if c.config == "" {
		return nil, nil
	}
	cfg, err := (&reading{}).load(c.config)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]doctor.Lease)
	for _, r := range cfg.Rules() {
		if !r.Place.Global {
			continue
		}
		url, err := config.HomeOf(homes, r.Place)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.Line, r, err)
		}
		if r.Place.Lease > 0 {
			out[url] = append(out[url], doctor.Lease{Rule: r.String(), Longest: r.Place.Lease})
		}
	}
	return out, nil
}

// examineHome checks a home. Opts lack what is the same for each.
func (c *checkup) examineHome(ctx context.Context, name, url string, opts doctor.Options) (*examined, error) {
	opts.Budget, opts.Home = c.homeBudget, true
	to, err := connect(url, opts.Prefix)
	if err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	defer to.close()
	what := strings.TrimSpace("home " + name)
	e, err := examine(ctx, to, opts)
	if err != nil {
		return nil, fmt.Errorf("the %s: %w", what, err)
	}
	e.what = what
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
