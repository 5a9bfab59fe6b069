package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/replay"
)

// suggestFlags is the flags of sash-logs suggest.
type suggestFlags struct {
	logs
	affect, requests string
	burst, sustained string

	policyFile string

	caps replay.Caps
}

func (a *app) suggest() *cobra.Command {
	s := &suggestFlags{}
	cmd := &cobra.Command{
		Use:   "suggest [FILE...]",
		Short: "Propose a pair of limits that would have affected few clients of an access log",
		Long: `Count the most units that each client requested in any short and in any long window, and propose a
limit for each: the tightest pair under which at most a share of the clients would ever have been
refused. The command replays the pair to show what it does, and lists what the log cannot show.

A few clients can send much of the traffic. The command warns if the pair refuses more than 1% of
the requests, and names the clients; --affect-requests loosens it until it refuses at most so many.

The proposal is tested on what it has not seen: the command makes it again from the first 70% of the
log's time, and counts whom that refuses in the rest.

--write-policy writes the pair as a configuration of sash serve in shadow mode, and the output has the
commands that test and serve it. --where proposes for a part of the requests, such as those of a route.

A window that the log covers fewer than 10 times is refused: a busier one is likely to come. Without
--sustained and --burst the command takes the longest up to 1h and 10s that the log covers.

` + expressionHelp + `

Exit codes: 0 done, 2 an error, 3 a warning with --strict, 4 interrupted: the answer is about what
was read until then.`,
		Example: `  sash-logs suggest --affect 0.1% access.log
  sash-logs suggest --affect 1% --affect-requests 0.5% access.log
  sash-logs suggest --write-policy limits.yaml --where 'path startsWith "/files/"' access.log
  sash-logs suggest --burst 1s --sustained 5m --key user --where 'user != ""' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.runSuggest(cmd, s, files) },
	}
	s.register(cmd)
	f := cmd.Flags()
	f.StringVar(&s.affect, "affect", "0.1%", "largest `share` of clients that may ever be refused")
	f.StringVar(&s.requests, "affect-requests", "", "largest `share` of requests that may be refused (default: any; above 1% warns)")
	f.StringVar(&s.policyFile, "write-policy", "", "write the pair to this new `file`, a configuration of sash serve in shadow mode")
	f.StringVar(&s.burst, "burst", "10s", "short `window`")
	f.StringVar(&s.sustained, "sustained", "1h", "long `window`")
	return cmd
}

// warnRequests is the share of refused requests above which the command warns.
const warnRequests = 0.01

// A suggestReport is the JSON of sash-logs suggest.
type suggestReport struct {
	logReport
	Limits        []string          `json:"limits"`
	Affected      int               `json:"clients_affected"`
	AffectedShare float64           `json:"clients_affected_share"`
	Allowed       int               `json:"clients_allowed"`
	Demand        []*replay.Demand  `json:"demand"`
	Outcomes      []*replay.Outcome `json:"candidates"`
	WindowNote    string            `json:"window_note,omitempty"`
	Warnings      []string          `json:"warnings"`
	HoldOut       *holdOut          `json:"hold_out,omitempty"`
	NoHoldOut     string            `json:"no_hold_out,omitempty"` // why
	Written       *written          `json:"written,omitempty"`
	Caveats       []string          `json:"caveats"`
}

func (a *app) runSuggest(cmd *cobra.Command, s *suggestFlags, files []string) error {
	pair, err := s.parse(cmd)
	if err != nil {
		return err
	}
	return s.run(cmd, a, files, func(ctx context.Context, _ *app, trace *replay.Trace, log logReport) (*answer, error) {
		return s.study(ctx, trace, log, *pair)
	})
}

// study makes the answer. It chooses windows by the log.
func (s *suggestFlags) study(ctx context.Context, trace *replay.Trace, log logReport, windows windowPair) (*answer, error) {
	pair := &windows
	early := func(err error) error {
		if ctx.Err() != nil {
			return errors.New("interrupted before there was a proposal")
		}
		return err
	}
	coverage, err := trace.Coverage(ctx)
	if err != nil {
		return nil, early(err)
	}
	report := &suggestReport{logReport: log, Warnings: []string{}}
	if err := pair.choose(coverage, report); err != nil {
		return nil, err
	}
	proposal, err := trace.Suggest(ctx, s.caps, pair.burst, pair.sustained)
	if err != nil {
		return nil, early(err)
	}
	report.Limits, report.Affected, report.Allowed = limitTexts(proposal.Limits), proposal.Affected, proposal.Allowed
	report.AffectedShare = float64(proposal.Affected) / float64(trace.Clients())
	report.Demand = []*replay.Demand{proposal.Burst, proposal.Sustained}
	if report.Caveats, err = trace.Caveats(ctx, replay.Candidate{Limits: proposal.Limits}); err != nil {
		return nil, early(err)
	}
	candidates := []replay.Candidate{{Limits: proposal.Limits}, {Limits: proposal.Limits, Options: sash.Options{Algorithm: sash.FixedWindow}}}
	report.Outcomes, err = trace.Run(ctx, candidates, 5, s.names)
	if err != nil {
		return nil, err
	}
	if err := s.confide(ctx, trace, pair, report); err != nil && ctx.Err() == nil {
		return nil, err
	}
	if err := s.write(report); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		report.Partial = "interrupted while the proposal was tested"
		if report.HoldOut == nil {
			report.NoHoldOut = cmp.Or(report.NoHoldOut, "interrupted")
		}
	}
	return &answer{
		report: report, log: &report.logReport,
		text:  func(t *text) { suggestText(t, s, report) },
		ended: func() error { return s.ended(&report.logReport, len(report.Warnings) > 0, nil) },
	}, nil
}

// parse reads the flags.
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
	if _, err := os.Lstat(s.policyFile); s.policyFile != "" && err == nil {
		return nil, fileExists(s.policyFile)
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

// parseShare parses a share such as 0.1% or 0.001.
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

// parseLength parses the length of a window as limits write it.
func parseLength(flag, text string) (time.Duration, error) {
	limit, err := sash.ParseLimit("1/" + text)
	if err != nil || limit.Period != 0 {
		return 0, fmt.Errorf("%s %q: write the length of a window, such as 10s, 5m or 1d", flag, text)
	}
	return limit.Window, nil
}

func limitTexts(limits []sash.Limit) []string {
	all := []string{}
	for _, l := range limits {
		all = append(all, l.String())
	}
	return all
}
