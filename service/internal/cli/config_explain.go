package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/serve"
)

func (a *app) configDiff() *cobra.Command {
	var asJSON, merge bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "List the rules that differ between two configurations; exit 1 if there are any",
		Args:  exactly("OLD", "NEW"),
		RunE: func(_ *cobra.Command, args []string) error {
			var two [2]*config.Config
			for i, path := range args {
				var err error
				if _, two[i], err = serve.Load(config.Source{Path: path, Merge: merge}); err != nil {
					return err
				}
			}
			changes := config.Diff(two[0], two[1])
			if asJSON {
				rows := []map[string]string{}
				for _, c := range changes {
					rows = append(rows, map[string]string{"rule": c.Rule, "before": c.Before, "after": c.After})
				}
				if err := writeJSON(a.out, map[string]any{"changes": rows}); err != nil {
					return err
				}
			} else {
				out := &lines{to: a.out}
				for _, c := range changes {
					out.say("%s", c)
				}
				if out.err != nil {
					return out.err
				}
			}
			if len(changes) > 0 {
				return errRefused
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	mergeFlag(cmd, &merge)
	return cmd
}

func (a *app) configExplain() *cobra.Command {
	var domain string
	var asJSON, merge bool
	cmd := &cobra.Command{
		Use:     "explain PATH KEY=VALUE...",
		Short:   "Say which rule limits a request with these entries, and why",
		Example: "  sash config explain limits.yaml --domain demo plan=free user=42",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			_, cfg, err := serve.Load(config.Source{Path: args[0], Merge: merge})
			if err != nil {
				return err
			}
			if domain == "" {
				if len(cfg.Domains()) != 1 {
					return fmt.Errorf("the configuration has several domains: give one of %s with --domain", strings.Join(cfg.Domains(), ", "))
				}
				domain = cfg.Domains()[0]
			}
			entries := make([]config.Entry, len(args)-1)
			for i, arg := range args[1:] {
				key, value, _ := strings.Cut(arg, "=")
				if key == "" {
					return errors.New("an entry is KEY=VALUE, and the key is not empty")
				}
				entries[i] = config.Entry{Key: key, Value: value}
			}
			steps, found, err := cfg.Trace(domain, entries)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, explained(steps, found))
			}
			return a.explain(steps, found)
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "the request's `domain` (default: the only one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	mergeFlag(cmd, &merge)
	return cmd
}

func (a *app) explain(steps []config.Step, found config.Found) error {
	out := &lines{to: a.out}
	for _, s := range steps {
		if s.Matched == "" {
			out.say("%s=%s  matches nothing here", s.Entry.Key, s.Entry.Value)
		} else {
			out.say("%s=%s  matches %s by its %s", s.Entry.Key, s.Entry.Value, s.Matched, s.How)
		}
	}
	if found.Rule == nil {
		out.say("No rule: the request is allowed, and not counted.")
		return out.err
	}
	out.say("rule     %s", found.Rule)
	out.say("limits   %s", found.Rule.Describe())
	if found.Rule.Limited() {
		out.say("charged  %s", found.Key)
	}
	if c := found.Rule.Candidate; c != nil {
		if c.Enforced(found.Key) {
			out.say("held to  the candidate: this subject is one of the %g%%", c.Percent)
		} else {
			out.say("held to  the limits; the candidate is watched on %s", config.CandidateKey(found.Key))
		}
	}
	out.say("metric   %s", found.Metric)
	return out.err
}

func explained(steps []config.Step, found config.Found) map[string]any {
	rows := []map[string]string{}
	for _, s := range steps {
		rows = append(rows, map[string]string{"key": s.Entry.Key, "value": s.Entry.Value, "matched": s.Matched, "how": s.How})
	}
	said := map[string]any{"steps": rows, "rule": nil}
	if found.Rule != nil {
		said["rule"], said["limits"], said["charged"], said["metric"] = found.Rule.String(), found.Rule.Describe(), found.Key, found.Metric
		if c := found.Rule.Candidate; c != nil {
			said["candidate_enforced"] = c.Enforced(found.Key)
		}
	}
	return said
}
