package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash"
)

// choices returns the values of a flag that has few, whichever command it belongs to.
func choices(flag string) []string {
	switch flag {
	case "algorithm":
		var names []string
		for _, a := range sash.Algorithms() {
			names = append(names, a.String())
		}
		return names
	case "log-level":
		return []string{"debug", "info", "warn", "error"}
	}
	return nil
}

// complete has shells complete the values of flags that have few, and offer files only where a file is meant.
func complete(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		values := choices(f.Name)
		what, _ := pflag.UnquoteUsage(f)
		switch {
		case values != nil:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		case what != "file" && f.Value.Type() != "bool":
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	})
	if !strings.Contains(cmd.Use, "FILE") && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}
