// Package logs is the command line of sash-logs.
package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/replay"
)

// Exit codes of every command.
const (
	exitDone    = 0
	exitFound   = 1 // a --fail-if holds
	exitError   = 2
	exitWarned  = 3 // with --strict
	exitPartial = 4 // interrupted: the answer is about a part
)

// Errors of commands that have written their answer.
var (
	errFound       = errors.New("found")
	errWarned      = errors.New("warned")
	errInterrupted = errors.New("interrupted")
)

// An app is one run of a command.
type app struct {
	args     []string
	out, err io.Writer
	env      func(string) string
}

// Run runs a command and returns its exit code: 0 done, 1 a condition holds, 2 an error, 3 a warning with --strict, 4
// interrupted. The command ends when ctx does. It reads only env for the environment.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env func(string) string) int {
	a := &app{args: args, out: out, err: err, env: env}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	failed := root.ExecuteContext(ctx)
	switch {
	case failed == nil:
		return exitDone
	case errors.Is(failed, errFound):
		return exitFound
	case errors.Is(failed, errWarned):
		return exitWarned
	case errors.Is(failed, errInterrupted):
		return exitPartial
	}
	if slices.Contains(args, "--json") {
		_ = json.NewEncoder(out).Encode(map[string]string{"error": failed.Error()})
		return exitError
	}
	_, _ = fmt.Fprintf(err, "sash-logs: %v\n", failed)
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sash-logs",
		Short: "Choose a limit from access logs",
		Long: `Sash-logs sends the requests of access logs through limits, with the code that decides in
production.

  sash-logs suggest access.log                       a limit to start with
  sash-logs replay --try 60/1m access.log            what a limit would have refused, and to whom

A limit is units, a slash and a window: 300/5m is at most 300 in any five minutes.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(a.replay(), a.suggest())
	a.addVersion(root)
	return root
}

// An answer is what a command says of a log.
type answer struct {
	report any
	log    *logReport
	text   func(*text)
	ended  func() error
}

// A study makes an answer from a log.
type study func(ctx context.Context, a *app, trace *replay.Trace, log logReport) (*answer, error)

// run reads the log and answers.
func (l *logs) run(cmd *cobra.Command, a *app, args []string, study study) error {
	trace, log, err := l.read(cmd, args)
	if err != nil {
		return err
	}
	said, err := study(log.studying(cmd.Context()), a, trace, log)
	if err != nil {
		return err
	}
	if err := a.print(l.json, said.report, said.text); err != nil {
		return err
	}
	return said.ended()
}
