package logs

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
	"example.com/sash/service/internal/serve"
)

// A logFile is one file of a log, or standard input, and the outcome of reading it.
type logFile struct {
	Name string `json:"name"`
	// Requests counts the lines that were read as requests, and Broken counts the others.
	Requests int64 `json:"requests"`
	Broken   int64 `json:"broken"`
	// Damaged says why the file was not read to its end.
	Damaged string `json:"damaged,omitempty"`

	times int64 // the sum of the times of its requests
}

const stdin = "-"

func (f *logFile) name() string {
	if f.Name == stdin {
		return "standard input"
	}
	return f.Name
}

type chooser interface {
	Select(r *accesslog.Record) (replay.Selection, bool, error)
	// Missing returns the fields that an expression read and that some records lack.
	Missing() []replay.Missing
	ByAddress() bool // whether the selected subject depends on the address
}

type logReading struct {
	*logs
	opts     accesslog.Options
	selector chooser
	files    []*logFile
	file     *logFile // the one that is read

	builder replay.Builder
	survey  replay.Survey
	stats   accesslog.Stats
}

func (l *logs) read(cmd *cobra.Command, args []string) (*replay.Trace, logReport, error) {
	r := &logReading{logs: l, opts: accesslog.Options{Format: l.format, Fields: l.fields}}
	l.names = func(client string) string { return client }
	if l.hide {
		secret := rand.Text()
		l.names = func(client string) string { return sash.Secret([]byte(secret), client)[:16] }
	}
	if l.expressions.Cost == "1" {
		l.expressions.Cost = "" // faster
	}
	var err error
	if r.opts.Trusted, err = networks(l.trusted); err != nil {
		return nil, logReport{}, err
	}
	if l.policy.file != "" {
		r.selector, err = l.policy.selector(l.expressions, cmd.Flags().Changed("cost"))
	} else {
		r.selector, err = replay.NewSelector(l.expressions)
	}
	if err != nil {
		return nil, logReport{}, err
	}
	if r.files, err = named(cmd, args); err != nil {
		return nil, logReport{}, err
	}
	for _, f := range r.files {
		r.file = f
		progress(cmd, "reading "+output.Printable(f.name()))
		if err := r.readFile(cmd.InOrStdin()); err != nil {
			return nil, logReport{}, err
		}
	}
	trace := r.builder.Trace()
	report := r.report(trace)
	return trace, report, r.empty(&report)
}

func named(cmd *cobra.Command, args []string) (files []*logFile, err error) {
	if len(args) == 0 {
		if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			return nil, fmt.Errorf("no log: name files, or send a log to standard input (see %s --help)", cmd.CommandPath())
		}
		args = []string{stdin}
	}
	for i, arg := range args {
		if slices.Contains(args[:i], arg) {
			return nil, fmt.Errorf("%s is named twice", arg)
		}
		files = append(files, &logFile{Name: arg})
	}
	return files, nil
}

// readFile reads a file. If the file is damaged, it records that in the logFile and returns no error.
func (r *logReading) readFile(in io.Reader) error {
	f := r.file
	if f.Name != stdin {
		file, err := os.Open(f.Name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	r.survey.NextFile()
	stats, err := accesslog.Read(f.name(), in, r.opts, r.record)
	if damaged, ok := errors.AsType[*accesslog.DamagedError](err); ok {
		f.Damaged, err = damaged.Error(), nil
	}
	f.Requests, f.Broken = stats.Records, stats.Broken
	r.stats.Add(stats)
	return err
}

func (r *logReading) record(record *accesslog.Record) error {
	late := r.survey.Add(record)
	r.file.times += record.Time
	selection, counts, err := r.selector.Select(record)
	switch {
	case err != nil && r.hide: // the error may contain the client
		return errors.New("an expression fails on this request (run without --hide-clients to see why)")
	case err != nil:
		return err
	case !counts:
		r.builder.Counts.Filtered++
		return nil
	case record.Status == http.StatusTooManyRequests:
		r.builder.Counts.Throttled++
	}
	if r.hide {
		selection.Agent = "" // it may name its user
	}
	if late {
		r.builder.Counts.Late++
	}
	r.builder.Add(record.Time, selection)
	return nil
}

// empty returns an error for a log without limitable requests. It says what the log contains and what to try.
func (r *logReading) empty(report *logReport) error {
	damaged := slices.IndexFunc(r.files, func(f *logFile) bool { return f.Damaged != "" })
	switch left := report.Filtered + report.Unlimited; {
	case report.Requests > 0:
		return nil
	case left > 0:
		var why []string
		for _, m := range r.selector.Missing() {
			why = append(why, m.String())
		}
		why = append(why, fmt.Sprintf("--where leaves out %d", report.Filtered),
			fmt.Sprintf("%d have no key, no cost, or no rule", report.Unlimited))
		return fmt.Errorf("no request is left: %s. --key, --cost and --where select what counts, and --field names fields with unusual names",
			strings.Join(why, ", "))
	case report.Broken > 0:
		b, begin := report.BrokenLines[0], ""
		if b.Text != "" {
			begin = fmt.Sprintf(". The line begins with %q", output.Printable(b.Text))
		}
		return fmt.Errorf("no line of the log could be read: %s:%d: %s. Without --log-format the format is detected; "+
			"--field names fields with unusual names: --field time=when%s", b.File, b.Line, b.Reason, begin)
	case damaged >= 0:
		return fmt.Errorf("%s: %s before its first request. Copy the file again", r.files[damaged].name(), r.files[damaged].Damaged)
	}
	return fmt.Errorf("the log is empty: no line in %s", filesText(r.files))
}

// ended returns the error that a command ends with after its answer: a condition of --fail-if holds, or a warning with --strict.
func (l *logs) ended(cmd *cobra.Command, report *logReport, outcomes []*replay.Outcome, warned bool) (found error) {
	for _, c := range l.failIf {
		for _, o := range outcomes {
			if c.holds(report, o) {
				found = errFound
				fmt.Fprintf(cmd.ErrOrStderr(), "sash-logs: %s holds for %s by %s\n", c.text, called(o, ","), o.Algorithm)
			}
		}
	}
	if l.strict && (warned || len(report.LogWarnings) > 0) {
		return errWarned
	}
	return found
}

type policyFlags struct {
	file    string
	domain  string
	entries []string
	costs   bool // --cost is given and replaces the rule's cost
	cfg     *config.Config
}

// candidates returns the configuration, and a copy with all its candidates promoted if it has any.
func (p *policyFlags) candidates() []replay.Candidate {
	c, promoted := replay.Candidate{Name: p.file}, replay.Candidate{Name: p.file + ", promoted"}
	tried := false
	for _, r := range p.cfg.Rules() {
		if r.Unlimited {
			continue
		}
		rule := replay.Rule{Limits: r.Limits, Options: r.Options}
		if r.Refuses {
			nothing := sash.PerSecond(refusesUnits)
			nothing.Name = "nothing"
			rule.Limits, rule.Refuses = []sash.Limit{nothing}, true
		}
		c.Rules = append(c.Rules, rule)
		if r.Candidate != nil {
			rule.Limits, rule.Options, rule.Refuses, tried = r.Candidate.Limits, r.Candidate.Options, false, true
		}
		promoted.Rules = append(promoted.Rules, rule)
	}
	if tried {
		return []replay.Candidate{c, promoted}
	}
	return []replay.Candidate{c}
}

// refusesUnits is the limit of a rule that refuses every request. A limit has at least one unit, so its requests cost one more.
const refusesUnits = 1

type policySelector struct {
	*policyFlags
	keys     []string
	values   []*replay.Selector
	rules    map[*config.Rule]int
	requests []config.Entry
}

func (p *policyFlags) selector(e replay.Expressions, costs bool) (chooser, error) {
	var err error
	if p.cfg, _, err = serve.Load(config.Source{Path: p.file}); err != nil {
		return nil, err
	}
	if p.domain, err = serve.Domain(p.cfg, p.domain); err != nil {
		return nil, err
	}
	if len(p.entries) == 0 {
		p.entries = []string{"remote_address=client"}
	}
	p.costs = costs
	s := &policySelector{policyFlags: p, rules: make(map[*config.Rule]int)}
	for _, r := range p.cfg.Rules() {
		if !r.Unlimited {
			s.rules[r] = len(s.rules)
		}
	}
	for _, entry := range p.entries {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--entry %q: write the key of a descriptor and an expression for its value, "+
				"such as remote_address=client", entry)
		}
		one := e
		one.Key = value
		selector, err := replay.NewSelector(one)
		if err != nil {
			return nil, fmt.Errorf("--entry %s: %w", entry, err)
		}
		s.keys, s.values = append(s.keys, key), append(s.values, selector)
	}
	return s, nil
}

// Select implements chooser.
func (s *policySelector) Select(r *accesslog.Record) (selection replay.Selection, counts bool, err error) {
	s.requests = s.requests[:0]
	for i, value := range s.values {
		if selection, counts, err = value.Select(r); err != nil || !counts {
			return selection, counts, err
		}
		if selection.Key == "" { // like Envoy, which makes no descriptor from a request without the value
			selection.Rule = -1
			return selection, true, nil
		}
		s.requests = append(s.requests, config.Entry{Key: s.keys[i], Value: selection.Key})
	}
	found, err := s.cfg.Find(s.domain, s.requests)
	if err != nil {
		return selection, false, err
	}
	selection.Key, selection.Rule = found.Key, -1
	if rule := found.Rule; rule != nil && !rule.Unlimited {
		selection.Rule = s.rules[rule]
		switch {
		case rule.Refuses:
			selection.Cost = refusesUnits + 1
		case !s.costs:
			selection.Cost = rule.Cost
		}
	}
	return selection, true, nil
}

func (s *policySelector) ByAddress() bool {
	return slices.ContainsFunc(s.values, (*replay.Selector).ByAddress)
}

func (s *policySelector) Missing() (all []replay.Missing) {
	for _, value := range s.values {
		for _, m := range value.Missing() {
			if !slices.ContainsFunc(all, func(other replay.Missing) bool { return other.Field == m.Field }) {
				all = append(all, m)
			}
		}
	}
	return all
}
