package logs

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
)

type replayFlags struct {
	logs
	try        []string
	algorithms []string
	worst      int
	html       string
}

func newReplay(args []string) *cobra.Command {
	r := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay --try LIMITS [FILE...]",
		Short: "Show what limits would have done to the requests of an access log",
		Long: `Send the requests of access logs through candidate limits, on a virtual clock, with the code that
decides in production. The report has for each candidate how many requests and clients it would have
refused, which were refused most, and what it would have let through.

` + expressionHelp + `

--policy tries a configuration of sash serve instead: the --entry values, in their order, are the
descriptor of each request, which has the cost of its rule unless --cost is given. A configuration
with candidates is tried twice: as it is, with no candidate enforced, and with all of them promoted.

A job log can be compared with the quota of somebody else's API: charge all calls to one --key, with
the --cost of each.

Exit codes: 0 done, 1 a --fail-if holds for some candidate, 2 an error, 3 a warning with --strict.`,
		Example: `  sash-logs replay --try 60/1m --try 300/5m --try 20/1s,600/1m access.log
  zcat access.log.*.gz | sash-logs replay --key 'prefix(remote_address, 24)' --try 10/1s --json
  sash-logs replay --try 60/1m --algorithm sliding-log,fixed-window --html report.html access.log
  sash-logs replay --try 60/1m --fail-if 'clients-limited>0.1%' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return r.run(cmd, args, files) },
	}
	r.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.try, "try", nil,
		"`limits` to try, such as 60/1m, or several that hold together: 20/1s,600/1m; repeat it to compare limits")
	f.StringSliceVar(&r.algorithms, "algorithm", []string{sash.SlidingLog.String()}, "how windows are counted; give several to compare them")
	f.StringVar(&r.policy.file, "policy", "", "configuration `file` to try")
	f.StringVar(&r.policy.domain, "domain", "", "domain of the configuration (default: its only one)")
	f.StringArrayVar(&r.policy.entries, "entry", nil,
		"entry of a request's descriptor: its key, =, and an expression; repeat it for several (default: remote_address=client)")
	f.IntVar(&r.worst, "worst", 5, "number of most refused clients and routes to list")
	f.StringVar(&r.html, "html", "", "also write a report with charts to this `file`: one page that needs no other files")
	return cmd
}

// candidates returns every --try with every algorithm. The candidates of a configuration are known when it is read.
func (r *replayFlags) candidates(cmd *cobra.Command) (all []replay.Candidate, err error) {
	unused, why := []string{"domain", "entry"}, "is for --policy, and not for --try"
	switch {
	case len(r.try) == 0 && r.policy.file == "":
		return nil, errors.New("--try is missing, such as --try 60/1m (sash-logs suggest proposes limits)")
	case len(r.try) > 0 && r.policy.file != "":
		return nil, errors.New("--try and --policy charge different keys: run them one after the other")
	case r.policy.file != "":
		unused, why = []string{"algorithm", "key"}, "is for --try, and not for --policy: the configuration has it (and --entry the subject)"
	case len(r.algorithms) == 0:
		return nil, errors.New("give at least one --algorithm")
	}
	for _, name := range unused {
		if cmd.Flags().Changed(name) {
			return nil, fmt.Errorf("--%s %s", name, why)
		}
	}
	for _, try := range r.try {
		limits, err := replay.ParseLimits(try)
		if err != nil {
			return nil, err
		}
		for i, name := range r.algorithms {
			c := replay.Candidate{Limits: limits}
			if err := c.Options.Algorithm.UnmarshalText([]byte(name)); err != nil {
				return nil, err
			}
			if c.Options.Algorithm == sash.SlidingBuckets {
				c.Options.Resolution = time.Second
			}
			if err := c.Check(); err != nil {
				return nil, err
			}
			if !slices.Contains(r.algorithms[:i], name) {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

type replayReport struct {
	logReport
	Demand     []*replay.Demand  `json:"demand"`
	Candidates []*replay.Outcome `json:"candidates"`
}

func (r *replayFlags) run(cmd *cobra.Command, args, files []string) error {
	candidates, err := r.candidates(cmd)
	if err != nil {
		return err
	}
	if r.worst < 0 {
		return errors.New("--worst must be at least 0")
	}
	trace, log, err := r.read(cmd, files)
	if err != nil {
		return err
	}
	if r.policy.file != "" {
		candidates = r.policy.candidates()
	}
	progress(cmd, "replaying the log")
	report := &replayReport{logReport: log, Demand: append([]*replay.Demand{}, trace.Demands(candidates)...)}
	if report.Candidates, err = trace.Run(candidates, r.worst, r.names); err != nil {
		return err
	}
	if r.html != "" {
		if err := r.page(args, trace, candidates, report); err != nil {
			return err
		}
	}
	if err := r.print(cmd, report, &report.logReport, nil, report.Candidates, func(t *output.Text) { replayText(t, report) }); err != nil {
		return err
	}
	return r.ended(cmd, &report.logReport, report.Candidates, false)
}

type failIf struct {
	text    string
	of      string
	least   bool // >=, not >
	value   float64
	percent bool
}

var failIfForm = regexp.MustCompile(`^\s*(clients-limited|refused|broken)\s*(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*$`)

func parseFailIf(text string) (failIf, error) {
	m := failIfForm.FindStringSubmatch(text)
	if m == nil {
		return failIf{}, fmt.Errorf("--fail-if %q: write clients-limited, refused or broken, then > or >=, and a number or a share, "+
			"such as 'clients-limited>0.1%%'", text)
	}
	value, err := strconv.ParseFloat(m[3], 64)
	return failIf{text: text, of: m[1], least: m[2] == ">=", value: value, percent: m[4] != ""}, err
}

func (f failIf) holds(log *logReport, o *replay.Outcome) bool {
	part, whole := o.Refused, o.Requests
	switch f.of {
	case "clients-limited":
		part, whole = o.ClientsLimited, int64(log.Clients)
	case "broken":
		part, whole = log.Broken, log.Broken+log.Requests+log.Filtered+log.Unlimited
	}
	got, bound := float64(part), f.value
	if f.percent {
		got, bound = 100*got, bound*float64(whole) // to compare without a division
	}
	return got > bound || f.least && got == bound
}

func replayText(t *output.Text, r *replayReport) {
	logText(t, &r.logReport)
	t.Say("")
	rows := [][]string{{
		"limits", "algorithm", "refused", r.noun() + "s limited", "each for about", "one " + r.noun() + " got at most", "all got at most",
	}}
	for _, o := range r.Candidates {
		each := "-" // the mean time limited for each client that was limited
		if o.ClientsLimited > 0 {
			each = secondsText(o.LimitedSeconds / float64(o.ClientsLimited))
		}
		rows = append(rows, []string{
			called(o, ","), o.Algorithm, part(o.Refused, o.RefusedShare), part(o.ClientsLimited, o.ClientsLimitedShare), each, oneClient(o),
			fmt.Sprintf("%d of %d in %s", o.AllClients.Admitted, o.AllClients.Offered, o.AllClients.Window),
		})
	}
	t.Rows(0, rows)
	for _, o := range r.Candidates {
		if o.AboveLimit > 0 {
			t.Say("%s: %d requests cost more than the whole limit and can never be admitted. Raise the limit, or look at --cost.",
				called(o, ","), o.AboveLimit)
		}
	}
	if len(r.Demand) > 0 {
		t.Say("\nWhat %ss ask for at most, without any limit:", r.noun())
		rows = [][]string{{"in any", "half of them", "90 %", "99 %", "99.9 %", "the one with most", ""}}
		for _, d := range r.Demand {
			row := []string{d.Window}
			for _, n := range []int64{d.P50, d.P90, d.P99, d.P999, d.Most} {
				row = append(row, strconv.FormatInt(n, 10))
			}
			rows = append(rows, append(row, ""))
		}
		t.Rows(tabwriter.AlignRight, rows)
	}
	for _, o := range r.Candidates {
		outcomeText(t, o)
	}
}

func outcomeText(t *output.Text, o *replay.Outcome) {
	if len(o.WorstClients) == 0 {
		return
	}
	t.Say("\n%s by %s (first refused at %s)", called(o, " and "), o.Algorithm, o.FirstRefused)
	var rows [][]string
	row := func(w replay.Worst, limited string) {
		rows = append(rows, []string{"  " + output.Printable(w.Name), fmt.Sprintf("%d of %d refused", w.Refused, w.Requests), limited})
	}
	for _, w := range o.WorstClients {
		row(w, strings.TrimSuffix("limited for "+secondsText(w.LimitedSeconds)+"  "+whoText(w), "  "))
	}
	for _, w := range o.WorstRoutes {
		row(w, "")
	}
	t.Rows(0, rows)
}

func whoText(w replay.Worst) string {
	known := []string{w.Crawler, w.Statuses, output.Printable(w.UserAgent)}
	return strings.Join(slices.DeleteFunc(known, func(s string) bool { return s == "" }), "  ")
}

func called(o *replay.Outcome, between string) string {
	return cmp.Or(o.Policy, strings.Join(o.Limits, between))
}

func oneClient(o *replay.Outcome) string {
	var all []string
	for _, m := range o.OneClient {
		if m.Admitted > 0 && len(all) < 3 { // none: a rule that matched no request
			all = append(all, fmt.Sprintf("%d in %s", m.Admitted, m.Window))
		}
	}
	return strings.Join(all, ", ")
}
