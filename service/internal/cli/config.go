package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service"
	"example.com/sash/service/internal/config"
)

func (a *app) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the example configuration, or check one",
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
	}, a.configCheck())
	return cmd
}

func (a *app) configCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration and list its limits; exit 0 if it is right, 2 if not",
		Args:  exactly("a FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, cfg, err := load(config.Source{Path: args[0]})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, map[string]any{"domains": cfg.Domains(), "rules": rows(cfg)})
			}
			for _, row := range rows(cfg) {
				if _, err := fmt.Fprintf(a.out, "%s: %s by %s\n", row.Descriptor, strings.Join(row.Limits, " and "), row.Algorithm); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// A ruleRow is one rule in the list that config check prints.
type ruleRow struct {
	Descriptor string         `json:"descriptor"`
	Limits     []string       `json:"limits"`
	Algorithm  sash.Algorithm `json:"algorithm"`
	Cost       int64          `json:"cost"`
	Shadow     bool           `json:"shadow_mode"`
}

func rows(cfg *config.Config) []ruleRow {
	out := []ruleRow{}
	for _, r := range cfg.Rules() {
		row := ruleRow{Descriptor: r.String(), Algorithm: r.Options.Algorithm, Cost: r.Cost, Shadow: r.Shadow}
		for _, l := range r.Limits {
			row.Limits = append(row.Limits, cmp.Or(l.Name, l.String()))
		}
		out = append(out, row)
	}
	return out
}
