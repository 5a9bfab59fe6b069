package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash/service"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/serve"
)

// load reads a configuration like serve in the same environment, and sets it as the Config of the returned settings.
func (a *app) load(path string) (*config.Config, *envoy.Settings, error) {
	env, err := envoy.Read(a.env, false)
	if err != nil {
		return nil, nil, err
	}
	env.Config.Path = path
	cfg, _, err := serve.Load(env.Config)
	return cfg, env, err
}

// loadDomain loads a configuration and returns the domain that a flag names, or else the only one.
func (a *app) loadDomain(path, flag string) (cfg *config.Config, domain string, err error) {
	if cfg, _, err = a.load(path); err == nil {
		domain, err = serve.Domain(cfg, flag)
	}
	return cfg, domain, err
}

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the example configuration, check one, or explain a request",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "example",
		Short:   "Print the commented configuration that sash serve uses by default",
		Example: "  sash config example > limits.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(service.Example)
			return err
		},
	}, a.configCheck(), a.configExplain(), a.configEnvoy())
	return cmd
}

func (a *app) configCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check PATH",
		Short: "Check a configuration and list its limits; exit 0 if it is valid, 2 if not",
		Args:  exactly("a PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, env, err := a.load(args[0])
			if err != nil {
				return err
			}
			refused, err := a.refusal(env)
			if err != nil {
				return err
			}
			warnings := append([]string{}, cfg.Warnings()...)
			if refused != nil {
				warnings = append(warnings, refused.Error())
			}
			rules := []map[string]any{}
			for _, r := range cfg.Rules() {
				limits := []string{}
				for _, l := range r.Limits {
					limits = append(limits, cmp.Or(l.Name, l.String()))
				}
				rules = append(rules, map[string]any{
					"descriptor": r.String(), "limits": limits, "algorithm": r.Options.Algorithm, "shadow_mode": r.Shadow, "description": r.Describe(),
				})
			}
			return a.print(map[string]any{"domains": cfg.Domains(), "rules": rules, "warnings": warnings}, func(t *output.Text) {
				for _, r := range cfg.Rules() {
					t.Say("%s: %s", r, r.Describe())
				}
				for _, warning := range warnings {
					t.Say("warning: %s", warning)
				}
			})
		},
	}
	a.jsonFlag(cmd.Flags())
	return cmd
}

// refusal returns the error of sash serve for the configuration in an environment. If the environment names no
// Redis, flags may still name it: the warning says which flags are needed, or what Redis would reject.
func (a *app) refusal(env *envoy.Settings) (warning, err error) {
	opts := serve.Options{Redis: a.redisURL("", env), Log: slog.New(slog.DiscardHandler)}
	home := a.env(homeVariable)
	if opts.Config = env.Config; opts.Redis != "" {
		opts.Home = home
	}
	if err := a.keys(&opts.SecretKeys, secretKeysVariable); err != nil {
		return nil, err
	}
	switch err = serve.Check(opts); {
	case opts.Redis != "" || err != nil && !errors.Is(err, config.ErrNoHome):
		return nil, err
	case err != nil:
		return err, nil
	}
	opts.Redis, opts.Home = "127.0.0.1:6379", "127.0.0.1:6379" // nothing connects
	if err = serve.Check(opts); err != nil {
		warning = fmt.Errorf("on Redis, %w", err)
	} else if home != "" {
		warning = errors.New("$" + homeVariable + " is set: sash serve needs --redis too")
	}
	return warning, nil
}

func (a *app) configExplain() *cobra.Command {
	var domain string
	cmd := &cobra.Command{
		Use:     "explain PATH KEY=VALUE...",
		Short:   "Show which rule limits a request with these entries, and why",
		Example: "  sash config explain limits.yaml --domain demo plan=free user=42",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, domain, err := a.loadDomain(args[0], domain)
			if err != nil {
				return err
			}
			entries := make([]config.Entry, len(args)-1)
			for i, arg := range args[1:] {
				key, value, _ := strings.Cut(arg, "=")
				if key == "" {
					return errors.New("an entry is KEY=VALUE, and the key is not empty")
				}
				entries[i] = config.Entry{Key: key, Value: value}
			}
			lines, found, err := cfg.Explain(domain, entries)
			if err != nil {
				return err
			}
			return a.print(nil, func(t *output.Text) { explain(t, lines, found) })
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "`domain` of the request (default: the only one)")
	return cmd
}

func explain(t *output.Text, lines []string, found config.Found) {
	for _, line := range lines {
		t.Say("%s", line)
	}
	if found.Rule == nil {
		t.Say("No rule: the request is allowed, and not counted.")
		return
	}
	t.Say("rule     %s", found.Rule)
	t.Say("limits   %s", found.Rule.Describe())
	if found.Rule.Limited() {
		t.Say("charged  %s", found.Key)
	}
	if c := found.Rule.Candidate; c != nil {
		if c.Enforced(found.Key) {
			t.Say("held to  the candidate: this subject is one of the %g%%", c.Percent)
		} else {
			t.Say("held to  the limits; the candidate is watched on %s", config.CandidateKey(found.Key))
		}
	}
	t.Say("metric   %s", found.Metric)
}
