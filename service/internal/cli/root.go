// Package cli is the command line of sash.
package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/serve"
)

// Exit codes of every command.
const (
	exitAllowed = 0 // or done
	exitRefused = 1 // or found wrong
	exitError   = 2
)

// errFound ends a command that has written its answer: a refusal, or a problem found.
var errFound = errors.New("refused or found wrong")

// An app is one run of a command.
type app struct {
	args     []string
	out, err io.Writer
	env      func(string) string

	// These flags are shared by several commands.
	redis string
	json  bool
}

// Args returns the arguments of a command line for Run. A program named ratelimit, like Envoy's rate limit
// service, runs sash serve.
func Args(line []string) []string {
	if filepath.Base(line[0]) == filepath.Base(asRatelimit) {
		return append([]string{asRatelimit}, line[1:]...)
	}
	return line[1:]
}

// Run runs a command and returns its exit code: 0 for allowed or done, 1 for refused or a problem found, 2 for
// an error. The command ends when ctx ends. It reads environment variables only through env.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env func(string) string) int {
	a := &app{args: args, out: out, err: err, env: env}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	failed := root.ExecuteContext(ctx)
	if log, ok := a.err.(*lossy); ok {
		if a.err = err; !log.end(time.Second) {
			a.err = io.Discard // nobody reads it
		}
	}
	switch {
	case failed == nil:
		return exitAllowed
	case errors.Is(failed, errFound):
		return exitRefused
	}
	text := hide(strings.TrimPrefix(failed.Error(), "sash: "), args)
	if slices.Contains(args, "--json") {
		_ = json.NewEncoder(out).Encode(map[string]string{"error": text})
		return exitError
	}
	_, _ = fmt.Fprintf(a.err, "sash: %s\n", text)
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "sash",
		Version: output.Version(),
		Short:   "A rate limiter whose window really slides",
		Long: `Sash limits rates: it admits at most so many units in any trailing window, and decides in one step.

A limit is units, a slash and a window: 300/5m is at most 300 in any five minutes. Windows are
durations such as 5s, 1m30s, 24h or 7d. Limits of a calendar day, hour or month name a zone:
10000/day@America/Los_Angeles.

Start here:

  sash serve                       a service that answers over HTTP; it prints a curl line to try

In shell scripts and cron jobs that share a Redis:

  export SASH_REDIS=redis://127.0.0.1:6379
  if sash allow --limit 9500/24h youtube --cost 100; then
    search-videos
  fi

A limit to start with, from an access log: sash-logs suggest.

On your own Redis:

  sash doctor                      what is wrong with its setup, and what to do
  sash verify                      whether the guarantees hold there, under load
  sash inspect KEY                 what it holds of a key

Exit codes: 0 allowed or done, 1 refused or found wrong, 2 an error (including wrong usage).`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	wrapHelp(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(a.serve(), a.allow(), a.reserve(), a.settle(), a.peek(), a.reset(), a.inspect(), a.config(), a.doctor(), a.token(), a.verify(), redisTopic())
	return root
}

// hide removes arguments that may contain a password, those with a colon before an "@", from a message.
func hide(text string, args []string) string {
	for _, arg := range args {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if i := strings.LastIndex(arg, "@"); i < 0 || !strings.Contains(arg[:i], ":") {
			continue
		}
		if _, rest, ok := strings.Cut(arg, "://"); ok { // network errors contain the address without its scheme
			text = strings.ReplaceAll(strings.ReplaceAll(text, arg, hidden), rest, hidden)
		}
		quoted := strconv.Quote(arg)
		text = strings.NewReplacer(quoted, hidden, quoted[1:len(quoted)-1], hidden, arg, hidden).Replace(text)
	}
	return text
}

const hidden = "(not shown: it may hold a password)"

// noAddress rejects arguments without showing them, because one may be an address with a password.
func noAddress(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments: give the address with --redis (see %s --help)", cmd.Name(), cmd.CommandPath())
}

func exactly(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments instead of %s (see %s --help)", len(args), name, cmd.CommandPath())
		}
		return nil
	}
}

// helpColumns is the width of help.
const helpColumns = 100

// wrapHelp wraps the flags in the help text that cobra writes for every command. With our own template, the
// linker would keep every method of every type, in case the template calls it.
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

// Signals returns a context that ends on SIGTERM, or on an interrupt with the cause serve.ErrInterrupted. A
// second signal ends the process at once. SIGHUP, with which many services reload their configuration, does
// nothing: sash reloads its configuration whenever it changes.
func Signals() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGHUP)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		signal.Stop(signals)
		if first == os.Interrupt {
			cancel(serve.ErrInterrupted)
			return
		}
		cancel(nil)
	}()
	return ctx
}

func (a *app) jsonFlag(f *pflag.FlagSet) { f.BoolVar(&a.json, "json", false, "answer in JSON") }

func (a *app) print(answer any, describe func(*output.Text)) error {
	return output.Print(a.out, a.json, answer, describe)
}

func units(n int64) string { return output.Count(n, "unit") }

func instantText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (a *app) token() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token for a client of sash serve --access",
		Long: `Make a token of 32 random bytes. The client sends it, as Authorization: Bearer TOKEN. The file of
sash serve --access lists its SHA-256, from which nobody can find it:

  clients:
    - name: billing
      tokens: [SHA-256]
      allow: [decide]

To replace a token without a pause, list the new one beside the old one, give it to the client, and
remove the old one. The SHA-256 of a token of your own: printf %s TOKEN | sha256sum.`,
		Example: "  sash token\n  sash token --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			random := make([]byte, 32)
			_, _ = rand.Read(random) // never fails
			token := base64.RawURLEncoding.EncodeToString(random)
			listed := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
			return a.print(map[string]string{"token": token, "sha256": listed}, func(out *output.Text) {
				out.Say("token   %s", token)
				out.Say("sha256  %s", listed)
			})
		},
	}
	a.jsonFlag(cmd.Flags())
	return cmd
}
