//go:build !sashserver

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
		Long: `Count the most units that each client requested in any short and in any long window, and propose a
limit for each: the tightest pair under which at most a share of the clients would ever have been
refused. The command replays the pair to show what it does, and lists what the log cannot show.

` + expressionHelp,
		Example: `  sash suggest --affect 0.1% access.log
  sash suggest --affect 1% --burst 1s --sustained 5m --key user --where 'user != ""' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.runSuggest(cmd, s, files) },
	}
	s.register(cmd)
	f := cmd.Flags()
	f.StringVar(&s.affect, "affect", "0.1%", "largest `share` of clients that may ever be refused")
	f.StringVar(&s.burst, "burst", "10s", "short `window`")
	f.StringVar(&s.sustained, "sustained", "1h", "long `window`")
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
	pair, err := trace.Suggest(cmd.Context(), affect, burst, sustained)
	if err != nil {
		return err
	}
	caveats, err := trace.Caveats(cmd.Context(), burst, sustained)
	if err != nil {
		return err
	}
	report := suggestReport{
		logReport: log, Affected: pair.Affected, AffectedShare: float64(pair.Affected) / float64(trace.Clients()), Allowed: pair.Allowed,
		Demand: []replay.DemandReport{pair.Burst.Report(), pair.Sustained.Report()}, Caveats: caveats,
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
	return a.print(s.json, report, func(t *text) { suggestText(t, s, &report) })
}

func suggestText(t *text, s *suggestFlags, r *suggestReport) {
	logText(t, &r.logReport)
	t.say("\nAt most %s of the clients may be affected: %d of %d.\n\n    %s\n", s.affect, r.Allowed, r.Clients, strings.Join(r.Limits, ","))
	o, fixed := r.Outcomes[0], r.Outcomes[1]
	t.say("would have refused %d of %d requests (%.2f%%), of %s (%.2f%%).", o.Refused, o.Requests, 100*o.RefusedShare, clients(o.ClientsLimited), 100*o.ClientsLimitedShare)
	t.say("Fixed windows of the same limits: %d requests, of %s; one client gets up to %s.", fixed.Refused, clients(fixed.ClientsLimited), oneClient(fixed))
	for i, d := range r.Demand {
		t.say("\nIn any %s a client asks for at most %d (half of them), %d (90%%), %d (99%%), %d (99.9%%), %d (the most).", d.Window, d.P50, d.P90, d.P99, d.P999, d.Most)
		curveText(t, d, r.Limits[i])
	}
	t.say("\nWhat this log cannot show:")
	for _, c := range r.Caveats {
		t.say("- %s", c)
	}
	t.say("\nSee what it does to whom:  sash replay --try %s FILE", strings.Join(r.Limits, ","))
}

// curveText writes a curve in a few lines, with its knee and the proposed limit.
func curveText(t *text, d replay.DemandReport, proposed string) {
	const most = 9
	units, _, _ := strings.Cut(proposed, "/")
	table := t.table(tabwriter.AlignRight)
	fmt.Fprintln(table, "limit\tclients affected\tshare\t")
	last := int64(-1)
	for i, p := range d.Curve {
		knee := d.Knee != nil && p.Units == d.Knee.Units
		this := strconv.FormatInt(p.Units, 10) == units
		// A line each time that the limit has grown by a half.
		if i > 0 && i < len(d.Curve)-1 && !knee && !this && (float64(p.Units) < 1.5*float64(last) || len(d.Curve) > 4*most && p.Affected == 0) {
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
		fmt.Fprintf(table, "%d/%s\t%d\t%.2f%%\t%s\n", p.Units, d.Window, p.Affected, 100*p.Share, mark)
	}
	_ = table.Flush() // the text keeps the error
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

// parseLength parses the length of a window as limits write it.
func parseLength(flag, text string) (time.Duration, error) {
	limit, err := sash.ParseLimit("1/" + text)
	if err != nil || limit.Period != 0 {
		return 0, fmt.Errorf("%s %q: write the length of a window, such as 10s, 5m or 1d", flag, text)
	}
	return limit.Window, nil
}
