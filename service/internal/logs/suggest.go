package logs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
)

type suggestFlags struct {
	logs
	affect, requests string
	burst, sustained string

	caps replay.Caps
}

func newSuggest() *cobra.Command {
	s := &suggestFlags{}
	cmd := &cobra.Command{
		Use:   "suggest [FILE...]",
		Short: "Propose a pair of limits that would have affected few clients of an access log",
		Long: `Count the most units that each client requested in any short and in any long window, and propose a
limit for each: the tightest pair under which at most a share of the clients would ever have been
refused. The command replays the pair to show what it does, and lists what the log cannot show. It
ends with the pair as a rule of sash serve in shadow mode.

The command warns if the pair refuses more than 1% of the requests, and if it is that of a few
clients which do one thing only. It makes the proposal again from the first 70% of the log's time,
and counts whom that refuses in the rest. --where proposes for a part of the requests.

A window that the log covers fewer than 10 times is refused: a busier one is likely to come. Without
--sustained and --burst the command takes the longest up to 1h and 10s that the log covers.

` + expressionHelp + `

Exit codes: 0 done, 1 a --fail-if holds for the pair, 2 an error, 3 a warning with --strict.`,
		Example: `  sash-logs suggest --affect 0.1% access.log
  sash-logs suggest --affect 1% --affect-requests 0.5% access.log
  sash-logs suggest --burst 1s --sustained 5m --key user --where 'user != ""' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return s.run(cmd, files) },
	}
	s.register(cmd)
	f := cmd.Flags()
	f.StringVar(&s.affect, "affect", "0.1%", "largest `share` of clients that may ever be refused")
	f.StringVar(&s.requests, "affect-requests", "", "largest `share` of requests that may be refused (default: any; above 1% warns)")
	f.StringVar(&s.burst, "burst", "10s", "short `window`")
	f.StringVar(&s.sustained, "sustained", "1h", "long `window`")
	return cmd
}

const warnRequests = 0.01

type suggestReport struct {
	logReport
	Limits        []sash.Limit      `json:"limits"`
	Affected      int               `json:"clients_affected"`
	AffectedShare float64           `json:"clients_affected_share"`
	Allowed       int               `json:"clients_allowed"`
	Demand        []*replay.Demand  `json:"demand"`
	Outcomes      []*replay.Outcome `json:"candidates"`
	WindowNote    string            `json:"window_note,omitempty"`
	Warnings      []string          `json:"warnings"`
	Cliffs        []*replay.Cliff   `json:"cliffs,omitempty"`
	Without       []sash.Limit      `json:"limits_without_cliffs,omitempty"`
	HoldOut       *replay.HoldOut   `json:"hold_out,omitempty"`
	NoHoldOut     string            `json:"no_hold_out,omitempty"` // why
	Caveats       []string          `json:"caveats"`
}

func (s *suggestFlags) run(cmd *cobra.Command, files []string) error {
	pair, err := s.parse(cmd)
	if err != nil {
		return err
	}
	trace, log, err := s.read(cmd, files)
	if err != nil {
		return err
	}
	report := &suggestReport{logReport: log, Warnings: []string{}}
	if err := pair.choose(trace.Coverage(), report); err != nil {
		return err
	}
	progress(cmd, "measuring windows (1 of 4)")
	proposal, err := trace.Suggest(s.caps, pair.burst, pair.sustained)
	if err != nil {
		return err
	}
	report.Limits, report.Affected, report.Allowed = proposal.Limits, proposal.Affected, proposal.Allowed
	report.AffectedShare = float64(proposal.Affected) / float64(trace.Clients())
	report.Demand = []*replay.Demand{proposal.Burst, proposal.Sustained}
	report.Caveats = trace.Caveats(replay.Candidate{Limits: proposal.Limits})
	progress(cmd, "replaying the pair (2 of 4)")
	if report.Outcomes, err = trace.Run(proposal.Candidates(), 5, s.names); err != nil {
		return err
	}
	progress(cmd, "looking for clients unlike the others (3 of 4)")
	if err := errors.Join(s.warnOfCliffs(proposal, report), s.warnOfRequests(proposal, report)); err != nil {
		return err
	}
	progress(cmd, "testing on the last part (4 of 4)")
	report.HoldOut, err = trace.HoldOut(s.caps, pair.burst, pair.sustained)
	if errors.Is(err, replay.ErrTooShort) {
		report.NoHoldOut, err = strings.TrimPrefix(err.Error(), replay.ErrTooShort.Error()+": "), nil
	}
	if err != nil {
		return err
	}
	if err := s.print(cmd, report, &report.logReport, report.Warnings, report.Outcomes, func(t *output.Text) { suggestText(t, s, report) }); err != nil {
		return err
	}
	return s.ended(cmd, &report.logReport, report.Outcomes[:1], len(report.Warnings) > 0)
}

// warnOfCliffs warns if a group of clients with unusual behavior determines the pair.
func (s *suggestFlags) warnOfCliffs(proposal *replay.Suggestion, r *suggestReport) error {
	cliffs, without, err := proposal.Cliffs(s.caps)
	if err != nil || len(cliffs) == 0 {
		return err
	}
	r.Cliffs, r.Without = cliffs, without.Limits
	for _, c := range cliffs {
		text := c.String() + ". They set the pair, and may be an attack or a program. Without them it is " + together(without.Limits) + "."
		if c.OnRoute != "" {
			text += " For " + c.Route + " alone it is " + c.OnRoute + "."
		}
		r.Warnings = append(r.Warnings, text)
	}
	return nil
}

// warnOfRequests warns if a few clients lose much of the traffic, and suggests limits that avoid it.
func (s *suggestFlags) warnOfRequests(proposal *replay.Suggestion, r *suggestReport) error {
	o := r.Outcomes[0]
	if s.caps.Requests > 0 || o.RefusedShare <= warnRequests {
		return nil
	}
	capped := s.caps
	capped.Requests = warnRequests
	other, err := proposal.With(capped)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("%.2f%% of the requests would have been refused, all of %s, which may be the best customers. "+
		"--affect-requests %g%% gives %s.", 100*o.RefusedShare, r.clients(o.ClientsLimited), 100*warnRequests, together(other.Limits)))
	return nil
}

func (s *suggestFlags) parse(cmd *cobra.Command) (*windowPair, error) {
	var err error
	if s.caps.Clients, err = parseShare("--affect", s.affect, "share of the clients", "0.1%"); err != nil {
		return nil, err
	}
	if s.requests != "" {
		if s.caps.Requests, err = parseShare("--affect-requests", s.requests, "share of the requests", "1%"); err != nil {
			return nil, err
		}
		if s.caps.Requests == 0 {
			return nil, errors.New("--affect-requests 0%: write --affect 0% to refuse nobody, or a share above 0%")
		}
	}
	p := &windowPair{fixedBurst: cmd.Flags().Changed("burst"), fixedSustained: cmd.Flags().Changed("sustained")}
	if p.burst, err = parseLength("--burst", s.burst); err != nil {
		return nil, err
	}
	if p.sustained, err = parseLength("--sustained", s.sustained); err != nil {
		return nil, err
	}
	if p.burst >= p.sustained {
		return nil, fmt.Errorf("--burst %s must be shorter than --sustained %s", s.burst, s.sustained)
	}
	return p, nil
}

func parseShare(flag, text, what, such string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f < 1) {
		return 0, fmt.Errorf("%s %q: write a %s from 0%% to below 100%%, such as %s", flag, text, what, such)
	}
	return f, nil
}

func parseLength(flag, text string) (time.Duration, error) {
	limit, err := sash.ParseLimit("1/" + text)
	if err != nil || limit.Period != 0 {
		return 0, fmt.Errorf("%s %q: write the length of a window, such as 10s, 5m or 1d", flag, text)
	}
	return limit.Window, nil
}

func together(limits []sash.Limit) string {
	var all []string
	for _, l := range limits {
		all = append(all, l.String())
	}
	return strings.Join(all, ",")
}

// knownWindows is how many windows a log must cover. The chance that the next window exceeds all of them is then at most 1 in 11.
const knownWindows = 10

type windowPair struct {
	burst, sustained           time.Duration
	fixedBurst, fixedSustained bool // given by a flag
}

// windowLadder lists the lengths that replace a default window that the log does not cover, longest first.
var windowLadder = []time.Duration{
	time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute, 2 * time.Minute, time.Minute,
	30 * time.Second, 20 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second,
}

// choose replaces default windows that the log is too short for, and reports this. The error says which windows the log covers.
func (p *windowPair) choose(c *replay.Coverage, report *suggestReport) error {
	asked := p.sustained
	switch known := longest(c, p.sustained); {
	case c.Windows(p.sustained) >= knownWindows:
	case p.fixedSustained || known == 0:
		return unknown("--sustained", p.sustained, c, known)
	default:
		report.WindowNote = fmt.Sprintf("%s. So the long window is %s.", covers(c, p.sustained), replay.WindowName(sash.Every(1, known)))
		p.sustained = known
	}
	if p.burst < p.sustained && c.Windows(p.burst) >= knownWindows {
		return nil
	}
	known := longest(c, min(p.burst, p.sustained/2))
	switch {
	case p.fixedBurst && p.burst >= p.sustained:
		return fmt.Errorf("--burst %s must be shorter than the long window, and the log knows none longer than %s: %s",
			replay.WindowName(sash.Every(1, p.burst)), replay.WindowName(sash.Every(1, p.sustained)), covers(c, asked))
	case p.fixedBurst || known == 0:
		return unknown("--burst", p.burst, c, known)
	}
	report.WindowNote += fmt.Sprintf(" The short one is %s.", replay.WindowName(sash.Every(1, known)))
	p.burst = known
	return nil
}

// longest returns the longest window of the ladder, up to most, that the log covers, or 0.
func longest(c *replay.Coverage, most time.Duration) time.Duration {
	for _, w := range windowLadder {
		if w <= most && c.Windows(w) >= knownWindows {
			return w
		}
	}
	return 0
}

func covers(c *replay.Coverage, w time.Duration) string {
	text := fmt.Sprintf("The log covers a window of %s %s, and %d times are needed",
		replay.WindowName(sash.Every(1, w)), output.Count(int64(c.Windows(w)), "time"), knownWindows)
	if c.Sampled {
		text += fmt.Sprintf(" (it looks sampled: its requests lie in %d of %d minutes)", c.Busy, c.Minutes)
	}
	return text
}

// unknown returns the error for a window that the log does not cover. Known is the longest window that it covers, or 0.
func unknown(flag string, w time.Duration, c *replay.Coverage, known time.Duration) error {
	advice := "It is too short for a proposal: use a longer log"
	if known > 0 {
		advice = fmt.Sprintf("Use %s %s, the longest that it knows, or a longer log", flag, replay.WindowName(sash.Every(1, known)))
	}
	return fmt.Errorf("%s %s: t%s, so a busier one is likely to come. %s",
		flag, replay.WindowName(sash.Every(1, w)), strings.TrimPrefix(covers(c, w), "T"), advice)
}

func suggestText(t *output.Text, s *suggestFlags, r *suggestReport) {
	logText(t, &r.logReport)
	if r.WindowNote != "" {
		t.Say("\n%s", r.WindowNote)
	}
	requests := ""
	if s.requests != "" {
		requests = fmt.Sprintf(", and %s of the requests refused", s.requests)
	}
	t.Say("\nAt most %s of the %ss may be affected, %d of %d%s.\n\n    %s\n",
		s.affect, r.noun(), r.Allowed, r.Clients, requests, together(r.Limits))
	for _, w := range r.Warnings {
		t.Say("WARNING: %s\n", w)
	}
	o, fixed := r.Outcomes[0], r.Outcomes[1]
	t.Say("would have refused %d of %d requests (%.2f%%), of %s (%.2f%%).",
		o.Refused, o.Requests, 100*o.RefusedShare, r.clients(o.ClientsLimited), 100*o.ClientsLimitedShare)
	t.Say("Fixed windows of the same limits: %d requests, of %s; one %s gets up to %s.",
		fixed.Refused, r.clients(fixed.ClientsLimited), r.noun(), oneClient(fixed))
	if len(o.WorstClients) > 0 {
		t.Say("\nRefused most:")
		var rows [][]string
		for _, w := range o.WorstClients {
			share := fmt.Sprintf("%d requests, %.2f%% of all", w.Requests, 100*float64(w.Requests)/float64(o.Requests))
			rows = append(rows, []string{"  " + output.Printable(w.Name), share, fmt.Sprintf("%d refused", w.Refused), whoText(w)})
		}
		t.Rows(0, rows)
	}
	holdOutText(t, r, s.caps)
	for i, d := range r.Demand {
		t.Say("\nIn any %s a %s asks for at most %d (half of them), %d (90%%), %d (99%%), %d (99.9%%), %d (the most).",
			d.Window, r.noun(), d.P50, d.P90, d.P99, d.P999, d.Most)
		curveText(t, d, r.noun(), r.Limits[i].Units)
	}
	t.Say("\nWhat this log cannot show:")
	for _, c := range r.Caveats {
		t.Say("- %s", c)
	}
	t.Say("\nSee what it does to whom:  sash-logs replay --try %s FILE", together(r.Limits))
	ruleText(t, s, r)
}

func holdOutText(t *output.Text, r *suggestReport, caps replay.Caps) {
	h := r.HoldOut
	if h == nil {
		t.Say("\nNot tested on a held-out part of the log: %s.", r.NoHoldOut)
		return
	}
	t.Say("\nTested on what it has not seen: the first %d%% of the time, until %s, gives %s. That refuses",
		h.Percent, h.Until.Format(timeForm), together(h.Limits))
	row := func(name string, j replay.Judged) []string {
		return []string{
			"  " + name, fmt.Sprintf("%.2f%% of the %ss", 100*j.LimitedShare, r.noun()), fmt.Sprintf("(%d of %d)", j.Limited, j.Clients),
			fmt.Sprintf("%.2f%% of the requests", 100*j.RefusedShare), fmt.Sprintf("(%d of %d)", j.Refused, j.Requests),
		}
	}
	t.Rows(0, [][]string{row(fmt.Sprintf("on the %d%%", h.Percent), h.First), row("on the rest", h.Rest)})
	if h.Rest.LimitedShare > caps.Clients || caps.Requests > 0 && h.Rest.RefusedShare > caps.Requests {
		t.Say("On the rest that is more than was asked for, so expect more in the days to come.")
	}
}

func curveText(t *output.Text, d *replay.Demand, noun string, proposed int64) {
	const most = 9
	rows := [][]string{{"limit", noun + "s affected", "share", ""}}
	last := int64(-1)
	for i, p := range d.Curve {
		// Print a line each time that the limit has grown by a half.
		near := float64(p.Units) < 1.5*float64(last) || len(d.Curve) > 4*most && p.Affected == 0
		if near && i > 0 && i < len(d.Curve)-1 && p.Units != proposed {
			continue
		}
		mark := ""
		if p.Units == proposed {
			mark = "   proposed"
		} else {
			last = p.Units
		}
		rows = append(rows, []string{fmt.Sprintf("%d/%s", p.Units, d.Window), strconv.Itoa(p.Affected), fmt.Sprintf("%.2f%%", 100*p.Share), mark})
	}
	t.Rows(tabwriter.AlignRight, rows)
}

var plainKey = regexp.MustCompile(`^[a-z_]+$`)

func ruleText(t *output.Text, s *suggestFlags, r *suggestReport) {
	t.Say("\nAs a configuration of sash serve in shadow mode: nothing is refused, and what would have been is counted.\n")
	e := s.expressions
	entry := e.Key // the field of --key, or a name for any other expression
	if entry == "client" {
		entry = "remote_address" // as forward-auth calls it
	} else if !plainKey.MatchString(entry) {
		entry = "client"
		t.Say("# The entry client is %s.", output.Printable(e.Key))
	}
	if e.Where != "" {
		t.Say("# Only requests with %s were counted: send no others, or they are charged too.", output.Printable(e.Where))
	}
	if e.Cost != "" {
		t.Say("# A request costs %s units: send them with it.", output.Printable(e.Cost))
	}
	t.Say("domain: web\ndescriptors:\n  - key: %s\n    limits: [\"%s\", \"%s\"]\n    shadow_mode: true", entry, r.Limits[0], r.Limits[1])
}
