package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"example.com/sash/replay"
	"example.com/sash/replay/htmlreport"
)

const (
	heatClients = 20
	heatSteps   = 96
)

// page writes the report as HTML. Clients are named as in the other outputs.
func (a *app) page(ctx context.Context, r *replayFlags, trace *replay.Trace, candidates []replay.Candidate, report replayReport) error {
	p := &htmlreport.Page{
		Title:    "What these limits would have done",
		Summary:  []string{fmt.Sprintf("%d requests of %s, from %s to %s; %d broken lines.", report.Requests, clientCount(int64(report.Clients)), report.First, report.Last, report.Broken)},
		Demand:   report.Demand,
		Outcomes: report.Candidates,
		Caveats:  trace.Caveats(replay.Windows(candidates)...),
	}
	for _, reserve := range report.Reserves {
		p.Classes = append(p.Classes, reserve.Class)
	}
	p.Heat = trace.Heat(trace.Busiest(heatClients), heatSteps)
	for i, name := range p.Heat.Clients {
		p.Heat.Clients[i] = r.names(name)
	}
	client := r.client
	if client == "" {
		client = trace.Busiest(1)[0]
		if worst := report.Candidates[0].WorstClients; len(worst) > 0 {
			client = trace.Client(worst[0])
		}
	}
	rule, err := trace.Rule(candidates[0], client)
	if err != nil {
		return err
	}
	moments, err := trace.Timeline(ctx, candidates[0], client)
	if err != nil {
		return err
	}
	p.Timeline = &htmlreport.Timeline{Client: r.names(client), Limits: rule.Limits, Algorithm: rule.Options.Algorithm, Moments: moments}
	var text bytes.Buffer
	if err := htmlreport.Write(&text, p); err != nil {
		return err
	}
	return os.WriteFile(r.html, text.Bytes(), 0o600)
}
