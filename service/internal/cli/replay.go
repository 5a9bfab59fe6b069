package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/replay"
)

// replayFlags is the flags of sash replay.
type replayFlags struct {
	logs
	try        []string
	algorithms []string
	resolution time.Duration
	retries    []string
	worst      int
	failIf     []string
	html       string
	client     string
	reserves   []string
	shares     []int // of the reserves
	days       bool
}

func (a *app) replay() *cobra.Command {
	r := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay --try LIMITS [FILE...]",
		Short: "Tell what limits would have done to the requests of an access log",
		Long: `Sends the requests of access logs through candidate limits, on a virtual clock, with the code that decides
in production, and tells of each candidate how many requests and clients it would have refused, which were
hit worst, what it would have let through, and what it takes on Redis (an estimate).

` + expressionHelp + `

With --policy a configuration of sash serve is tried instead, or too: each request is asked with the --entry
values, in their order, and costs what its rule says unless --cost is given. A configuration with candidates is
tried as it is, enforced for nobody, and with all of them promoted.

Retries: clients give up (none), try again after a second (naive), when Retry-After says (retry-after), or after
a random time up to 1, 2, 4, ... 60 seconds (full-jitter); all but the first give up after five.

A job log can be held against the quota of somebody else's API: charge all to one --key, with the --cost of each call.
With --reserve each candidate is tried twice, and the report has, for each day, when the quota first refused a
class of calls and what. All classes are charged alike; one with a reserve of 5% stops when 95% is used.

Exit codes: 0 done, 1 a --fail-if holds for some candidate, 2 an error.`,
		Example: `  sash replay --try 60/1m --try 300/5m --try 20/1s,600/1m access.log
  zcat access.log.*.gz | sash replay --key 'prefix(remote_address, 24)' --try 10/1s --json
  sash replay --try 60/1m --algorithm sliding-log,fixed-window --html report.html access.log
  sash replay --try 60/1m --fail-if 'clients-limited>0.1%' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.runReplay(cmd, r, files) },
	}
	r.register(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.try, "try", nil, "`limits` to try, such as 60/1m, or several that hold together: 20/1s,600/1m; repeat it to compare")
	f.StringSliceVar(&r.algorithms, "algorithm", []string{sash.SlidingLog.String()}, "how windows are counted; name several to compare them")
	f.DurationVar(&r.resolution, "resolution", time.Second, "the step of sliding-buckets")
	f.StringSliceVar(&r.retries, "retry", []string{replay.NoRetry.String()}, "what refused clients do: none, naive, retry-after or full-jitter; name several to compare them")
	f.StringVar(&r.policy.file, "policy", "", "a configuration `file` to try")
	f.StringVar(&r.policy.domain, "domain", "", "the domain of the configuration (default: its only one)")
	f.StringArrayVar(&r.policy.entries, "entry", nil, "an entry of a request's descriptor: its key, =, and an expression; repeat it for several (default: remote_address=remote_address)")
	f.IntVar(&r.worst, "worst", 5, "how many of the worst-hit clients and routes to list")
	f.StringArrayVar(&r.failIf, "fail-if", nil, "exit with 1 if a candidate meets this `condition`, such as 'clients-limited>0.1%', 'refused>=100' or 'broken>1%'")
	f.StringArrayVar(&r.reserves, "reserve", nil, "what requests of a class leave to others of the limits, as an `expression` and a percentage: 'user == \"cron\": 5%'; tried beside no reserve; repeat it for more classes")
	f.BoolVar(&r.days, "days", false, "tell of each day when limits first refused, and how much; --reserve does too")
	f.StringVar(&r.html, "html", "", "write a report with plots to this `file` too: one page that needs nothing else")
	f.StringVar(&r.client, "client", "", "the client whose window the report shows (default: the one that the first candidate hits worst)")
	return cmd
}

// candidates are what the flags ask to try: every --try by every algorithm with every kind of retry.
func (r *replayFlags) candidates() ([]replay.Candidate, error) {
	if len(r.try) == 0 && r.policy.file == "" {
		return nil, errors.New("--try is missing, such as --try 60/1m (sash suggest proposes limits)")
	}
	if len(r.try) > 0 && r.policy.file != "" {
		return nil, errors.New("--try and --policy are charged to different keys: run them one after the other")
	}
	algorithms, err := algorithms(r.algorithms)
	if err != nil {
		return nil, err
	}
	var all []replay.Candidate
	for _, text := range r.retries {
		retry, err := replay.ParseRetry(text)
		if err != nil {
			return nil, err
		}
		if r.policy.file != "" {
			all = append(all, replay.Candidate{Name: r.policy.file, Retry: retry})
			continue
		}
		for _, try := range r.try {
			limits, err := replay.ParseLimits(try)
			if err != nil {
				return nil, err
			}
			for _, algorithm := range algorithms {
				c := replay.Candidate{Limits: limits, Options: sash.Options{Algorithm: algorithm}, Retry: retry}
				if algorithm == sash.SlidingBuckets {
					c.Options.Resolution = r.resolution
				}
				for _, c := range r.reserved(c) {
					if err := c.Check(); err != nil {
						return nil, err
					}
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// A replayReport is the JSON of sash replay.
type replayReport struct {
	logReport
	Demand     []replay.DemandReport `json:"demand"`
	Reserves   []reserve             `json:"reserves,omitempty"` // of class 1, 2, ...
	Candidates []*replay.Outcome     `json:"candidates"`
}

func (a *app) runReplay(cmd *cobra.Command, r *replayFlags, files []string) error {
	if err := r.classes(); err != nil {
		return err
	}
	candidates, err := r.candidates()
	if err != nil {
		return err
	}
	conditions := make([]failIf, len(r.failIf))
	for i, text := range r.failIf {
		if conditions[i], err = parseFailIf(text); err != nil {
			return err
		}
	}
	if r.client != "" && (r.html == "" || r.policy.file != "") {
		return errors.New("--client is for --html, and not for --policy")
	}
	if r.worst < 0 {
		return errors.New("--worst must be at least 0")
	}
	trace, log, err := r.read(cmd, a, files)
	if err != nil {
		return err
	}
	if err := emptyLog(log); err != nil {
		return err
	}
	if r.policy.file != "" {
		var all []replay.Candidate
		for i := range candidates {
			all = append(all, r.policy.candidates(candidates[i].Retry)...)
		}
		candidates = all
	}
	report := replayReport{logReport: log, Demand: []replay.DemandReport{}, Reserves: r.said()}
	bar := a.progress("replaying", log.Requests*int64(len(candidates)))
	report.Candidates, err = trace.Run(cmd.Context(), candidates, &replay.RunOptions{Worst: cmp.Or(r.worst, -1), Days: r.days, Name: r.names, Progress: bar.set})
	bar.end()
	if err != nil {
		return err
	}
	demands, err := trace.Demands(candidates)
	if err != nil {
		return err
	}
	for _, d := range demands {
		report.Demand = append(report.Demand, d.Report())
	}
	if r.html != "" {
		if err := a.page(cmd.Context(), r, trace, candidates, report); err != nil {
			return err
		}
	}
	if r.json {
		err = writeJSON(a.out, report)
	} else {
		err = a.replayText(report)
	}
	if err != nil {
		return err
	}
	return a.failed(conditions, report)
}

// failed says which conditions hold.
func (a *app) failed(conditions []failIf, report replayReport) error {
	var result error
	for _, c := range conditions {
		for _, o := range report.Candidates {
			if c.holds(report.logReport, o) {
				with := ""
				if o.Shares != nil {
					with = " with the reserve"
				}
				_, _ = fmt.Fprintf(a.err, "sash: %s holds for %s by %s%s\n", c.text, strings.Join(o.Limits, ","), o.Algorithm, with)
				result = errRefused
			}
		}
	}
	return result
}

// replayText is the summary for a terminal.
func (a *app) replayText(r replayReport) error {
	a.logText(r.logReport)
	_, _ = fmt.Fprintln(a.out)
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "limits\talgorithm\tretries\trefused\tclients limited\ttime limited\tone client got at most\tall got at most\tRedis, about")
	for _, o := range r.Candidates {
		name := strings.Join(o.Limits, ",")
		if o.Policy != "" {
			name = o.Policy
		}
		if o.Shares != nil {
			name += ", reserve"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, o.Algorithm, o.Retry,
			part(o.Refused, o.RefusedShare), part(o.ClientsLimited, o.ClientsLimitedShare), time.Duration(o.LimitedSeconds*1e9).Round(time.Second),
			oneClient(o), fmt.Sprintf("%d of %d in %s", o.AllClients[1].Admitted, o.AllClients[1].Offered, o.AllClients[1].Window),
			fmt.Sprintf("%s, %d calls", bytesText(o.Redis.Bytes), o.Redis.Calls))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Demand) > 0 {
		_, _ = fmt.Fprintln(a.out, "\nWhat clients ask for at most, without any limit:")
		t = tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintln(t, "in any\thalf of them\t90 %\t99 %\t99.9 %\tthe one with most\t")
		for _, d := range r.Demand {
			_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", d.Window, d.P50, d.P90, d.P99, d.P999, d.Most)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, o := range r.Candidates {
		a.outcomeText(o)
	}
	return a.daysText(r)
}

// outcomeText is whom a candidate hits.
func (a *app) outcomeText(o *replay.Outcome) {
	if len(o.WorstClients) == 0 && (o.Retries == nil || o.Refused == 0) {
		return
	}
	_, _ = fmt.Fprintf(a.out, "\n%s by %s", strings.Join(o.Limits, " and "), o.Algorithm)
	if o.Shares != nil {
		_, _ = fmt.Fprint(a.out, ", with the reserve")
	}
	if r := o.Retries; r != nil {
		_, _ = fmt.Fprintf(a.out, ", retries %s: %d attempts, %d of them refused; %d requests never admitted; the others waited %gs (median), %gs at most",
			o.Retry, r.Attempts, r.RefusedAttempts, r.GaveUp, r.DelayMedian, r.DelayMost)
	}
	_, _ = fmt.Fprintf(a.out, " (first refused at %s)\n", o.FirstRefused)
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, w := range o.WorstClients {
		_, _ = fmt.Fprintf(t, "  %s\t%d of %d refused\tlimited for %v\n", printable(w.Name), w.Refused, w.Requests, time.Duration(w.LimitedSeconds*1e9).Round(time.Second))
	}
	for _, w := range o.WorstRoutes {
		_, _ = fmt.Fprintf(t, "  %s\t%d of %d refused\t\n", printable(w.Name), w.Refused, w.Requests)
	}
	_ = t.Flush()
}

func part(n int64, share float64) string { return fmt.Sprintf("%d (%.2f%%)", n, 100*share) }

func oneClient(o *replay.Outcome) string {
	var all []string
	for _, m := range o.OneClient {
		if m.Admitted == 0 { // a rule that met nobody
			continue
		}
		all = append(all, fmt.Sprintf("%d in %s", m.Admitted, m.Window))
		if len(all) == 3 {
			break
		}
	}
	return strings.Join(all, ", ")
}

func bytesText(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%d kB", n/1000)
	}
	return fmt.Sprintf("%d MB", n/1_000_000)
}

// printable keeps what a log has from moving the terminal's cursor, and from filling the screen.
func printable(s string) string {
	const most = 70
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
