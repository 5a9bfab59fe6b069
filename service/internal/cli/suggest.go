package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/replay"
)

// suggestFlags is the flags of sash suggest.
type suggestFlags struct {
	logs
	affect           string
	burst, sustained string
}

func (a *app) suggest() *cobra.Command {
	s := &suggestFlags{}
	cmd := &cobra.Command{
		Use:   "suggest [FILE...]",
		Short: "Propose a pair of limits that would have affected few clients of an access log",
		Long: `Counts the most that each client asked for in any short and in any long window, and proposes a limit for each:
the tightest pair under which at most a share of the clients would ever have been refused. It replays the pair to
show what it does, and says what the log cannot show.

` + expressionHelp,
		Example: `  sash suggest --affect 0.1% access.log
  sash suggest --affect 1% --burst 1s --sustained 5m --key user --where 'user != ""' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.runSuggest(cmd, s, files) },
	}
	s.register(cmd)
	f := cmd.Flags()
	f.StringVar(&s.affect, "affect", "0.1%", "the `share` of clients that may be refused at some time, at most")
	f.StringVar(&s.burst, "burst", "10s", "the short `window`")
	f.StringVar(&s.sustained, "sustained", "1h", "the long `window`")
	return cmd
}

// A suggestReport is the JSON of sash suggest.
type suggestReport struct {
	logReport
	Limits        []string              `json:"limits"`
	Affected      int                   `json:"clients_affected"`
	AffectedShare float64               `json:"clients_affected_share"`
	Allowed       int                   `json:"clients_allowed"`
	Demand        []replay.DemandReport `json:"demand"`
	Outcomes      []*replay.Outcome     `json:"candidates"`
	Caveats       []string              `json:"caveats"`
}

func (a *app) runSuggest(cmd *cobra.Command, s *suggestFlags, files []string) error {
	affect, err := parseShare(s.affect)
	if err != nil {
		return err
	}
	burst, err := parseLength("--burst", s.burst)
	if err != nil {
		return err
	}
	sustained, err := parseLength("--sustained", s.sustained)
	if err != nil {
		return err
	}
	if burst >= sustained {
		return fmt.Errorf("--burst %s must be shorter than --sustained %s", s.burst, s.sustained)
	}
	trace, log, err := s.read(cmd, a, files)
	if err != nil {
		return err
	}
	if err := emptyLog(log); err != nil {
		return err
	}
	pair, err := trace.Suggest(affect, burst, sustained)
	if err != nil {
		return err
	}
	report := suggestReport{
		logReport: log, Affected: pair.Affected, AffectedShare: float64(pair.Affected) / float64(trace.Clients()), Allowed: pair.Allowed,
		Demand: []replay.DemandReport{pair.Burst.Report(), pair.Sustained.Report()}, Caveats: trace.Caveats(burst, sustained),
	}
	for _, l := range pair.Limits {
		report.Limits = append(report.Limits, l.String())
	}
	candidates := []replay.Candidate{{Limits: pair.Limits}, {Limits: pair.Limits, Options: sash.Options{Algorithm: sash.FixedWindow}}}
	bar := a.progress("replaying", 2*log.Requests)
	report.Outcomes, err = trace.Run(cmd.Context(), candidates, &replay.RunOptions{Name: s.names, Progress: bar.set})
	bar.end()
	if err != nil {
		return err
	}
	if s.json {
		return writeJSON(a.out, report)
	}
	return a.suggestText(s, report)
}

func (a *app) suggestText(s *suggestFlags, r suggestReport) error {
	a.logText(r.logReport)
	_, _ = fmt.Fprintf(a.out, "\nAt most %s of the clients may be affected: %d of %d.\n\n    %s\n\n", s.affect, r.Allowed, r.Clients, strings.Join(r.Limits, ","))
	o, fixed := r.Outcomes[0], r.Outcomes[1]
	_, _ = fmt.Fprintf(a.out, "would have refused %d of %d requests (%.2f%%), of %s (%.2f%%).\n", o.Refused, o.Requests, 100*o.RefusedShare, clientCount(o.ClientsLimited), 100*o.ClientsLimitedShare)
	_, _ = fmt.Fprintf(a.out, "Fixed windows of the same limits: %d requests, of %s; one client gets up to %s.\n", fixed.Refused, clientCount(fixed.ClientsLimited), oneClient(fixed))
	for i, d := range r.Demand {
		_, _ = fmt.Fprintf(a.out, "\nIn any %s a client asks for at most %d (half of them), %d (90%%), %d (99%%), %d (99.9%%), %d (the most).\n", d.Window, d.P50, d.P90, d.P99, d.P999, d.Most)
		if err := a.curveText(d, r.Limits[i]); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(a.out, "\nWhat this log cannot show:")
	for _, c := range r.Caveats {
		_, _ = fmt.Fprintf(a.out, "- %s\n", c)
	}
	_, err := fmt.Fprintf(a.out, "\nSee what it does to whom:  sash replay --try %s FILE\n", strings.Join(r.Limits, ","))
	return err
}

// curveText shows a curve in a few lines, with its knee and the proposed limit.
func (a *app) curveText(d replay.DemandReport, proposed string) error {
	const lines = 9
	units, _, _ := strings.Cut(proposed, "/")
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "limit\tclients affected\tshare\t")
	last := int64(-1)
	for i, p := range d.Curve {
		knee := d.Knee != nil && p.Units == d.Knee.Units
		this := strconv.FormatInt(p.Units, 10) == units
		// Every so often as the limit grows by a half.
		if i > 0 && i < len(d.Curve)-1 && !knee && !this && (float64(p.Units) < 1.5*float64(last) || len(d.Curve) > 4*lines && p.Affected == 0) {
			continue
		}
		if !knee && !this {
			last = p.Units
		}
		mark := ""
		if knee {
			mark = "  the knee"
		}
		if this {
			mark = cmp.Or(mark, " ") + "  proposed"
		}
		_, _ = fmt.Fprintf(t, "%d/%s\t%d\t%.2f%%\t%s\n", p.Units, d.Window, p.Affected, 100*p.Share, mark)
	}
	return t.Flush()
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f < 1) {
		return 0, fmt.Errorf("--affect %q: write a share of the clients from 0%% to below 100%%, such as 0.1%%", text)
	}
	return f, nil
}

// parseLength reads a window as limits have it.
func parseLength(flag, text string) (time.Duration, error) {
	limit, err := sash.ParseLimit("1/" + text)
	if err != nil || limit.Period != 0 {
		return 0, fmt.Errorf("%s %q: write the length of a window, such as 10s, 5m or 1d", flag, text)
	}
	return limit.Window, nil
}

func clientCount(n int64) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}
