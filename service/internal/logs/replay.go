package logs

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/sash/service/internal/replay"
)

func (a *app) replay() *cobra.Command {
	r := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay --try LIMITS [FILE...]",
		Short: "Show what limits would have done to the requests of an access log",
		Long: `Send the requests of access logs through candidate limits, on a virtual clock, with the code that
decides in production. The report has for each candidate how many requests and clients it would have
refused, which were refused most, what it would have let through, and what it costs on Redis (an
estimate).

` + expressionHelp + `

--policy tries a configuration of sash serve instead: the --entry values, in their order, are the
descriptor of each request, which has the cost of its rule unless --cost is given. A configuration
with candidates is tried twice: as it is, with no candidate enforced, and with all of them promoted.

A job log can be compared with the quota of somebody else's API: charge all calls to one --key, with
the --cost of each.

Exit codes: 0 done, 1 a --fail-if holds for some candidate, 2 an error, 3 a warning with --strict,
4 interrupted: the answer is about what was read until then.`,
		Example: `  sash-logs replay --try 60/1m --try 300/5m --try 20/1s,600/1m access.log
  zcat access.log.*.gz | sash-logs replay --key 'prefix(remote_address, 24)' --try 10/1s --json
  sash-logs replay --try 60/1m --algorithm sliding-log,fixed-window --html report.html access.log
  sash-logs replay --try 60/1m --fail-if 'clients-limited>0.1%' access.log`,
		RunE: func(cmd *cobra.Command, files []string) error { return a.runReplay(cmd, r, files) },
	}
	r.register(cmd)
	return cmd
}

// A replayReport is the JSON of sash-logs replay.
type replayReport struct {
	logReport
	Demand     []*replay.Demand  `json:"demand"`
	Candidates []*replay.Outcome `json:"candidates"`
}

func (a *app) runReplay(cmd *cobra.Command, r *replayFlags, files []string) error {
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
	if err := r.unused(cmd); err != nil {
		return err
	}
	if r.client != "" && r.html == "" {
		return errors.New("--client is for --html")
	}
	if r.worst < 0 {
		return errors.New("--worst must be at least 0")
	}
	return r.run(cmd, a, files, func(ctx context.Context, with *app, trace *replay.Trace, log logReport) (*answer, error) {
		return r.study(ctx, with, trace, log, candidates, func(report replayReport) error { return a.failed(conditions, report) })
	})
}

// study makes the answer.
func (r *replayFlags) study(ctx context.Context, a *app, trace *replay.Trace, log logReport, candidates []replay.Candidate, failed func(replayReport) error) (*answer, error) {
	if r.policy.file != "" {
		candidates = r.policy.candidates()
	}
	report := &replayReport{logReport: log, Demand: []*replay.Demand{}}
	var err error
	report.Candidates, err = trace.Run(ctx, candidates, r.worst, r.names)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		report.Partial = "interrupted while requests were replayed"
	} else if err := r.rest(ctx, a, trace, candidates, report); err != nil {
		return nil, err
	}
	return &answer{
		report: report, log: &report.logReport,
		text:  func(t *text) { replayText(t, report) },
		ended: func() error { return r.ended(&report.logReport, false, failed(*report)) },
	}, nil
}

// rest adds what is not about single candidates.
func (r *replayFlags) rest(ctx context.Context, a *app, trace *replay.Trace, candidates []replay.Candidate, report *replayReport) error {
	demands, err := trace.Demands(ctx, candidates)
	if err != nil {
		return err
	}
	report.Demand = append(report.Demand, demands...)
	if r.html == "" {
		return nil
	}
	return r.page(ctx, a, trace, candidates, report)
}

// failed reports the conditions that hold, and returns errFound if any does.
func (a *app) failed(conditions []failIf, report replayReport) error {
	var result error
	for _, c := range conditions {
		for _, o := range report.Candidates {
			if c.holds(report.logReport, o) {
				fmt.Fprintf(a.err, "sash-logs: %s holds for %s by %s%s\n", c.text, called(o, ","), o.Algorithm, "")
				result = errFound
			}
		}
	}
	return result
}
