package logs

import (
	"bytes"
	"cmp"
	"os"
	"strings"
	"time"

	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/htmlreport"
)

const (
	heatClients = 20
	heatSteps   = 96
)

// page writes the report as HTML, with clients named as in the other outputs.
func (r *replayFlags) page(args []string, trace *replay.Trace, candidates []replay.Candidate, report *replayReport) error {
	p := &htmlreport.Page{
		Title:    "What these limits would have done",
		Inputs:   r.inputs(report),
		Command:  "sash-logs",
		Clients:  report.noun() + "s",
		Demand:   report.Demand,
		Outcomes: report.Candidates,
		Heat:     trace.Heat(trace.Busiest(heatClients), heatSteps),
		Caveats:  trace.Caveats(candidates...),
	}
	for _, arg := range args {
		p.Command += " " + shellText(arg)
	}
	for _, w := range report.LogWarnings {
		p.Summary = append(p.Summary, "Warning: "+w.Text)
	}
	for i, name := range p.Heat.Clients {
		p.Heat.Clients[i] = r.names(name)
	}
	var html bytes.Buffer
	if err := htmlreport.Write(&html, p); err != nil {
		return err
	}
	return os.WriteFile(r.html, html.Bytes(), 0o600)
}

// inputs lists what the report was made from.
func (r *replayFlags) inputs(report *replayReport) []htmlreport.Input {
	requests := htmlreport.Number(report.Requests)
	if report.Broken > 0 {
		requests += ", " + htmlreport.Number(report.Broken) + " broken lines left out"
	}
	for _, p := range report.asides() {
		requests += ", " + htmlreport.Number(p.n) + " " + p.what
	}
	client := report.Client
	if report.Key != "" {
		client += ", by the key " + report.Key
	}
	all := []htmlreport.Input{
		{Name: "Log", Text: filesText(report.Files) + ", read as " + report.how()},
		{Name: "Time", Text: report.First + " to " + report.Last},
		{Name: "Requests", Text: requests},
		{Name: strings.ToUpper(report.noun()[:1]) + report.noun()[1:] + "s", Text: htmlreport.Number(int64(report.Clients)) + ": " + client},
		{Name: "Cost of a request", Text: report.Cost},
		{Name: "Counted", Text: cmp.Or(report.Where, "all requests")},
	}
	if len(r.expressions.Routes) > 0 {
		all = append(all, htmlreport.Input{Name: "Routes", Text: strings.Join(r.expressions.Routes, ", ")})
	}
	return append(all, htmlreport.Input{Name: "Made", Text: time.Now().UTC().Format("2006-01-02 15:04 UTC") + ", by sash-logs " + output.Version()})
}
