// Package logs is the command line of sash-logs.
package logs

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
)

const (
	exitDone   = 0
	exitFound  = 1 // a --fail-if holds
	exitError  = 2
	exitWarned = 3 // with --strict
)

// The errors of commands that have written their answer.
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
	progress(root, "")
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

type logs struct {
	format      string
	trusted     []string
	fields      map[string]string
	expressions replay.Expressions
	hide        bool
	json, csv   bool
	strict      bool
	failIf      []failIf
	policy      policyFlags

	names func(client string) string // returns the name of a client in outputs
}

func (l *logs) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.format, "log-format", "", "`text` of nginx's log_format or Apache's LogFormat, or one of "+
		strings.Join(accesslog.FormatNames(), ", ")+" (default: detected)")
	f.StringToStringVar(&l.fields, "field", nil, "JSON key or column of a field with an unusual `name`, such as time=when; fields are "+
		strings.Join(accesslog.Fields(), ", "))
	f.StringSliceVar(&l.trusted, "trusted-proxies", nil,
		"`networks` of your proxies, such as 10.0.0.0/8: the client is the last forwarded address outside them")
	f.StringVar(&l.expressions.Key, "key", "client", "subject that a request is charged to, as an `expression`")
	f.StringVar(&l.expressions.Cost, "cost", "1", "units of a request, as an `expression`")
	f.StringVar(&l.expressions.Where, "where", "", "requests that count, as an `expression` (default: all)")
	f.StringArrayVar(&l.expressions.Routes, "route", nil,
		"`pattern` such as 'GET /users/{id}', whose requests count as one route; repeat it for several")
	f.BoolVar(&l.hide, "hide-clients", false, "write an HMAC instead of each client, with a key that is made for this run")
	f.BoolVar(&l.strict, "strict", false, "exit with 3 after a warning, such as that clients may be misread or a file is damaged")
	f.Func("fail-if", "exit with 1 if a candidate meets this `condition`, such as 'clients-limited>0.1%', 'refused>=100' or 'broken>1%'",
		func(text string) error {
			one, err := parseFailIf(text)
			l.failIf = append(l.failIf, one)
			return err
		})
	f.BoolVar(&l.json, "json", false, "answer in JSON")
	f.BoolVar(&l.csv, "csv", false, "answer in CSV, a row for each candidate, with warnings on standard error")
	cmd.MarkFlagsMutuallyExclusive("json", "csv")
}

// print writes an answer in the form that the flags select. CSV contains only the outcomes.
func (l *logs) print(cmd *cobra.Command, answer any, log *logReport, warnings []string, outcomes []*replay.Outcome, describe func(*output.Text)) error {
	progress(cmd, "")
	if !l.csv {
		return output.Print(cmd.OutOrStdout(), l.json, answer, describe)
	}
	for _, w := range log.LogWarnings {
		cmd.PrintErrln("warning: " + w.Text)
	}
	for _, w := range warnings {
		cmd.PrintErrln("WARNING: " + w)
	}
	rows := [][]string{{"limits", "algorithm", "requests", "refused", "clients", "clients_limited", "limited_seconds"}}
	for _, o := range outcomes {
		rows = append(rows, []string{called(o, ","), o.Algorithm, fmt.Sprint(o.Requests), fmt.Sprint(o.Refused), fmt.Sprint(log.Clients),
			fmt.Sprint(o.ClientsLimited), strconv.FormatFloat(o.LimitedSeconds, 'f', -1, 64)})
	}
	return csv.NewWriter(cmd.OutOrStdout()).WriteAll(rows)
}

// progress shows what the command is doing while it runs, if standard error is a terminal.
func progress(cmd *cobra.Command, doing string) {
	if to, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(to.Fd())) {
		cmd.PrintErr("\r\x1b[K" + doing)
	}
}

const expressionHelp = `The format is detected from the first lines, and so is what stands around them: container runtimes,
compose, syslog, journald, Loki. For any other format paste the server's own with --log-format.
Files may be compressed with gzip or zstd; without a FILE, or for "-", standard input is read. Files
and lines may be out of order. Of a damaged file everything before the damage counts.

The answer begins with a verdict on the log: can it be trusted? A warning says what makes the answer
wrong and what mends it; --strict makes it an exit code.

Expressions are in the language of github.com/expr-lang/expr over client (the address as httplimit,
grpclimit and forward-auth count it, IPv6 by its /64), remote_address (as it is in the log), user,
method, path, query, route, host, status, bytes, duration, user_agent and referer, with
header("X-Api-Key"), field("any.name"), prefix(remote_address, 24, 64) and key(user, route):

  --key 'prefix(remote_address, 24)'   --cost 'method == "GET" ? 1 : 5'
  --where 'status < 500 && path startsWith "/api/"'

A cost that is a fraction is rounded up. A request whose line lacks what an expression needs is not
charged, and counted.`

func networks(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		one, err := netip.ParsePrefix(text)
		if address, notAddress := netip.ParseAddr(text); err != nil && notAddress == nil {
			one, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies: %q is neither a network such as 10.0.0.0/8 nor an address", text)
		}
		all = append(all, one)
	}
	return all, nil
}

func part(n int64, share float64) string { return fmt.Sprintf("%d (%.2f%%)", n, 100*share) }

func shellText(arg string) string {
	plain := func(c rune) bool {
		return strings.ContainsRune("_-./:=,@%+", c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// secondsText returns a duration for people, in at most two units and no unit below seconds.
func secondsText(seconds float64) string {
	const day = 24 * 60 * 60
	length := time.Duration(seconds * 1e9)
	switch {
	case seconds >= 2*day:
		return strconv.FormatFloat(math.Round(10*seconds/day)/10, 'f', -1, 64) + " days"
	case seconds >= 60*60:
		return strings.TrimSuffix(length.Round(time.Minute).String(), "0s")
	case seconds > 0 && seconds < 1:
		return length.Round(time.Millisecond).String()
	}
	return length.Round(time.Second).String()
}
