package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of help.
const helpColumns = 100

// wrapHelp wraps the flags in the help of every command, in the text that cobra writes: a template of our own would make
// the linker keep every method of every type, in case that the template calls it.
func wrapHelp(root *cobra.Command) {
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		defer cmd.SetOut(out)
		err := usage(cmd)
		wrapped := text.String()
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			if line := strings.TrimRight(flags.FlagUsages(), " \n"); line != "" {
				wrapped = strings.Replace(wrapped, line, strings.TrimRight(flags.FlagUsagesWrapped(helpColumns), " \n"), 1)
			}
		}
		if err == nil {
			_, err = out.Write([]byte(wrapped))
		}
		return err
	})
}
