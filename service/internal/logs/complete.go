package logs

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
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return choose(values, typed, strings.HasSuffix(f.Value.Type(), "Slice")), cobra.ShellCompDirectiveNoFileComp
			})
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

// choose returns the values that begin with what was typed: in a list, after its last comma.
func choose(values []string, typed string, list bool) (all []cobra.Completion) {
	before := ""
	if i := strings.LastIndexByte(typed, ','); list && i >= 0 {
		before, typed = typed[:i+1], typed[i+1:]
	}
	for _, v := range values {
		if strings.HasPrefix(v, typed) {
			all = append(all, before+v)
		}
	}
	return all
}
