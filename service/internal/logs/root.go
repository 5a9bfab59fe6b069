// Package logs is the command line of sash-logs.
package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/output"
)

// Exit codes of every command.
const (
	exitDone   = 0
	exitFound  = 1 // a --fail-if holds
	exitError  = 2
	exitWarned = 3 // with --strict
)

// Errors of commands that have written their answer.
var (
	errFound  = errors.New("found")
	errWarned = errors.New("warned")
)

// Run runs a command and returns its exit code: 0 done, 1 a condition holds, 2 an error, 3 a warning with --strict.
func Run(args []string, in io.Reader, out, err io.Writer) int {
	root := &cobra.Command{
		Use:   "sash-logs",
		Short: "Choose a limit from access logs",
		Long: `Sash-logs sends the requests of access logs through limits, with the code that decides in
production.

  sash-logs suggest access.log                       a limit to start with
  sash-logs replay --try 60/1m access.log            what a limit would have refused, and to whom

A limit is units, a slash and a window: 300/5m is at most 300 in any five minutes.`,
		Version:       output.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newReplay(args), newSuggest())
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	failed := root.Execute()
	switch {
	case failed == nil:
		return exitDone
	case errors.Is(failed, errFound):
		return exitFound
	case errors.Is(failed, errWarned):
		return exitWarned
	case slices.Contains(args, "--json"):
		_ = json.NewEncoder(out).Encode(map[string]string{"error": failed.Error()})
	default:
		_, _ = fmt.Fprintf(err, "sash-logs: %v\n", failed)
	}
	return exitError
}
