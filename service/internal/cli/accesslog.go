//go:build !sashserver

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/replay"
	"example.com/sash/replay/accesslog"
)

// logs is the flags of commands on access logs.
type logs struct {
	format      string
	fields      map[string]string
	expressions replay.Expressions
	hide        bool
	hideKey     string
	json        bool
	policy      policyFlags

	names func(client string) string // returns a client as outputs name it
}

func (l *logs) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.format, "format", "auto", "format of the lines: auto, combined, json, csv or alb")
	f.StringToStringVar(&l.fields, "field", nil, "JSON key or column of a field with an unusual `name`, such as time=when; fields are "+strings.Join(accesslog.Fields(), ", "))
	f.StringVar(&l.expressions.Key, "key", "remote_address", "subject that a request is charged to, as an `expression`")
	f.StringVar(&l.expressions.Cost, "cost", "1", "units of a request, as an `expression`")
	f.StringVar(&l.expressions.Where, "where", "", "requests that count, as an `expression` (default: all)")
	f.StringArrayVar(&l.expressions.Routes, "route", nil, "`pattern` such as 'GET /users/{id}', whose requests count as one route; repeat it for several")
	f.BoolVar(&l.hide, "hide-clients", false, "write an HMAC instead of each client, with a key that is made for this run")
	f.StringVar(&l.hideKey, "hide-key", "", "`file` with the key for --hide-clients, so that several runs write the same")
	jsonFlag(f, &l.json)
}

// expressionHelp is the part of the help that commands on access logs share.
const expressionHelp = `Logs are in the common or combined format, JSON lines (nginx, Caddy, Envoy), lines of AWS load
balancers, or CSV whose first line names the columns, compressed with gzip or not. Without a FILE,
or for "-", standard input is read. Lines may be out of order. Broken lines are counted and the
first of them shown.

Expressions are in the language of github.com/expr-lang/expr over remote_address, user, method,
path, query, route, host, status, bytes, duration, user_agent and referer, with header("X-Api-Key"),
field("any.name"), prefix(remote_address, 24, 64) for the network of an address, and key(user,
route) for several parts:

  --key 'prefix(remote_address, 24)'   --cost 'method == "GET" ? 1 : 5'
  --where 'status < 500 && path startsWith "/api/"'`

// A logReport describes the log that was read.
type logReport struct {
	Requests    int64        `json:"requests"`
	Broken      int64        `json:"broken"`
	Clients     int          `json:"clients"`
	Filtered    int64        `json:"filtered"`
	Unlimited   int64        `json:"unlimited"`
	Late        int64        `json:"out_of_order"`
	Throttled   int64        `json:"already_429"`
	First       string       `json:"first,omitempty"`
	Last        string       `json:"last,omitempty"`
	BrokenLines []brokenLine `json:"broken_lines"`
}

type brokenLine struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"`
}

// read reads all logs into a trace.
func (l *logs) read(cmd *cobra.Command, a *app, files []string) (*replay.Trace, logReport, error) {
	var report logReport
	fail := func(err error) (*replay.Trace, logReport, error) { return nil, report, err }
	if err := l.hiding(); err != nil {
		return fail(err)
	}
	opts := &accesslog.Options{Fields: l.fields}
	var err error
	if opts.Format, err = accesslog.ParseFormat(l.format); err != nil {
		return fail(err)
	}
	selector, err := l.selector(cmd)
	if err != nil {
		return fail(err)
	}
	if len(files) == 0 {
		if in, ok := cmd.InOrStdin().(*os.File); ok && isTerminal(in) {
			return fail(fmt.Errorf("no log: name one or more files, or send one to standard input (see %s --help)", cmd.CommandPath()))
		}
		files = []string{"-"}
	}
	var builder replay.Builder
	each := func(r *accesslog.Record) error {
		selection, counts, err := selector.Select(r)
		switch {
		case err != nil && l.hide: // the error may contain the client
			return errHidden
		case err != nil:
			return err
		case !counts:
			builder.Skip()
			return nil
		case r.Status == 429:
			builder.Throttled()
		}
		builder.Add(r.Time, selection)
		return nil
	}
	var stats accesslog.Stats
	bar := a.progress("reading", sizes(files))
	for _, name := range files {
		one, err := readLog(cmd.Context(), name, cmd.InOrStdin(), bar, opts, each)
		stats.Add(one)
		if err != nil {
			bar.end()
			return fail(err)
		}
	}
	bar.end()
	trace := builder.Trace()
	return trace, l.report(trace, stats), nil
}

var errHidden = errors.New("an expression fails on this request (run without --hide-clients and --hide-key to see why)")

func readLog(ctx context.Context, name string, stdin io.Reader, bar *progress, opts *accesslog.Options, each func(*accesslog.Record) error) (accesslog.Stats, error) {
	if name == "-" {
		return accesslog.Read(ctx, "standard input", bar.reader(stdin), opts, each)
	}
	file, err := os.Open(name)
	if err != nil {
		return accesslog.Stats{}, err
	}
	defer func() { _ = file.Close() }()
	return accesslog.Read(ctx, name, bar.reader(file), opts, each)
}

// sizes returns the bytes of all files, or 0 if one is not a regular file.
func sizes(files []string) (all int64) {
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		all += info.Size()
	}
	return all
}

func (l *logs) report(trace *replay.Trace, stats accesslog.Stats) logReport {
	counts := trace.Counts()
	report := logReport{
		Requests: counts.Requests, Broken: stats.Broken, Clients: trace.Clients(), Filtered: counts.Filtered,
		Unlimited: counts.Unlimited, Late: counts.Late, Throttled: counts.Throttled, BrokenLines: []brokenLine{},
	}
	if first, last := trace.Span(); !first.IsZero() {
		report.First, report.Last = first.Format(timeForm), last.Format(timeForm)
	}
	for _, b := range stats.First {
		line := brokenLine{File: b.File, Line: b.Line, Reason: b.Reason, Text: b.Text}
		if l.hide { // it contains the address
			line.Text = ""
		}
		report.BrokenLines = append(report.BrokenLines, line)
	}
	return report
}

const timeForm = "2006-01-02T15:04:05.999999Z07:00"

// hiding sets the function that names clients.
func (l *logs) hiding() error {
	l.names = func(client string) string { return client }
	if l.hideKey != "" {
		l.hide = true
	}
	if !l.hide {
		return nil
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	if l.hideKey != "" {
		var err error
		if secret, err = os.ReadFile(l.hideKey); err != nil {
			return err
		}
		if len(secret) < 16 {
			return fmt.Errorf("the key in %s has %d bytes; it must have at least 16, or addresses can be guessed from it", l.hideKey, len(secret))
		}
	}
	l.names = func(client string) string { return sash.Secret(secret, client)[:16] }
	return nil
}

// A chooser selects whom a record is charged to, and what.
type chooser interface {
	Select(r *accesslog.Record) (replay.Selection, bool, error)
}

func (l *logs) selector(cmd *cobra.Command) (chooser, error) {
	if l.expressions.Cost == "1" {
		l.expressions.Cost = "" // faster
	}
	if l.policy.file != "" {
		return l.policy.selector(l.expressions, cmd.Flags().Changed("cost"))
	}
	return replay.NewSelector(l.expressions)
}

// emptyLog returns an error for a log in which nothing can be limited.
func emptyLog(r logReport) error {
	switch {
	case r.Requests > 0:
		return nil
	case r.Broken > 0 && r.Filtered+r.Unlimited == 0:
		return fmt.Errorf("no line of the log could be read: %s:%d: %s (is --format right?)", r.BrokenLines[0].File, r.BrokenLines[0].Line, r.BrokenLines[0].Reason)
	case r.Filtered+r.Unlimited == 0:
		return errors.New("the log is empty")
	}
	return fmt.Errorf("no request is left: --where leaves out %d, and %d have no key, no cost, or no rule", r.Filtered, r.Unlimited)
}

// logText writes the first paragraph of a summary.
func logText(t *text, r *logReport) {
	t.say("%d requests of %s, from %s to %s", r.Requests, clients(int64(r.Clients)), r.First, r.Last)
	var more []string
	for _, part := range []struct {
		n    int64
		what string
	}{
		{r.Filtered, "left out by --where"}, {r.Unlimited, "without a key, cost or rule"},
		{r.Late, "after a later one in the log: decided in time order"}, {r.Throttled, "answered with 429 already"},
	} {
		if part.n > 0 {
			more = append(more, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(more) > 0 {
		t.say("(%s)", strings.Join(more, "; "))
	}
	if r.Broken == 0 {
		return
	}
	t.say("%d lines are broken and were left out; the first:", r.Broken)
	for _, b := range r.BrokenLines {
		line := ""
		if b.Text != "" {
			line = ": " + b.Text
		}
		t.say("  %s:%d: %s%s", b.File, b.Line, b.Reason, line)
	}
}

// algorithms parses names of algorithms. It returns each once, in the order given.
func algorithms(names []string) ([]sash.Algorithm, error) {
	var all []sash.Algorithm
	for _, name := range names {
		var one sash.Algorithm
		if err := one.UnmarshalText([]byte(name)); err != nil {
			return nil, err
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all, nil
}
