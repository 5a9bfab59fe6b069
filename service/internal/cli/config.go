package cli

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/serve"
)

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the example configuration, check one, compare two, or explain a request",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "example",
		Short:   "Print the commented configuration that sash serve starts with",
		Example: "  sash config example > limits.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(service.Example)
			return err
		},
	}, a.configCheck(), a.configDiff(), a.configExplain())
	return cmd
}

func (a *app) configCheck() *cobra.Command {
	var asJSON, merge bool
	cmd := &cobra.Command{
		Use:   "check PATH",
		Short: "Check a configuration and list its limits; exit 0 if it is right, 2 if not",
		Args:  exactly("a PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, cfg, err := serve.Load(config.Source{Path: args[0], Merge: merge})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, map[string]any{"domains": cfg.Domains(), "rules": rows(cfg)})
			}
			out := &lines{to: a.out}
			for _, row := range rows(cfg) {
				limits := strings.Join(row.Limits, " and ")
				switch {
				case row.Unlimited:
					out.say("%s: unlimited", row.Descriptor)
				case row.Refuses:
					out.say("%s: refuses everything", row.Descriptor)
				default:
					out.say("%s: %s by %s", row.Descriptor, limits, row.Algorithm)
				}
				if row.Candidate != "" {
					out.say("%s: %s", row.Descriptor, row.Candidate)
				}
			}
			return out.err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	mergeFlag(cmd, &merge)
	return cmd
}

func mergeFlag(cmd *cobra.Command, merge *bool) {
	cmd.Flags().BoolVar(merge, "merge-domains", false, mergeUsage)
}

const mergeUsage = "let several files configure one domain"

// A ruleRow is one rule in the list that config check prints.
type ruleRow struct {
	Descriptor string         `json:"descriptor"`
	Limits     []string       `json:"limits"`
	Algorithm  sash.Algorithm `json:"algorithm"`
	Cost       int64          `json:"cost"`
	Shadow     bool           `json:"shadow_mode"`
	Unlimited  bool           `json:"unlimited,omitempty"`
	Refuses    bool           `json:"refuses,omitempty"`
	Candidate  string         `json:"candidate,omitempty"`
}

func rows(cfg *config.Config) []ruleRow {
	out := []ruleRow{}
	for _, r := range cfg.Rules() {
		row := ruleRow{Descriptor: r.String(), Algorithm: r.Options.Algorithm, Cost: r.Cost, Shadow: r.Shadow, Unlimited: r.Unlimited, Refuses: r.Refuses}
		for _, l := range r.Limits {
			row.Limits = append(row.Limits, cmp.Or(l.Name, l.String()))
		}
		if r.Candidate != nil {
			row.Candidate = r.Candidate.Describe()
		}
		out = append(out, row)
	}
	return out
}
