package logs

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"example.com/sash/service/internal/replay"
)

func suggestText(t *text, s *suggestFlags, r *suggestReport) {
	logText(t, &r.logReport)
	if r.WindowNote != "" {
		t.say("\n%s", r.WindowNote)
	}
	requests := ""
	if s.requests != "" {
		requests = fmt.Sprintf(", and %s of the requests refused", s.requests)
	}
	t.say("\nAt most %s of the %ss may be affected, %d of %d%s.\n\n    %s\n", s.affect, r.noun(), r.Allowed, r.Clients, requests, strings.Join(r.Limits, ","))
	o, fixed := r.Outcomes[0], r.Outcomes[1]
	t.say("would have refused %d of %d requests (%.2f%%), of %s (%.2f%%).", o.Refused, o.Requests, 100*o.RefusedShare, r.clients(o.ClientsLimited), 100*o.ClientsLimitedShare)
	t.say("Fixed windows of the same limits: %d requests, of %s; one %s gets up to %s.", fixed.Refused, r.clients(fixed.ClientsLimited), r.noun(), oneClient(fixed))
	refusedText(t, o)
	for _, w := range r.Warnings {
		t.say("\nWARNING: %s", w)
	}
	if r.Written != nil {
		writtenText(t, r.Written)
	}
	confidenceText(t, r, s.caps)
	for i, d := range r.Demand {
		t.say("\nIn any %s a %s asks for at most %d (half of them), %d (90%%), %d (99%%), %d (99.9%%), %d (the most).", d.Window, r.noun(), d.P50, d.P90, d.P99, d.P999, d.Most)
		curveText(t, d, r.noun(), r.Limits[i])
	}
	t.say("\nWhat this log cannot show:")
	for _, c := range r.Caveats {
		t.say("- %s", c)
	}
	t.say("\nSee what it does to whom:  sash-logs replay --try %s FILE", strings.Join(r.Limits, ","))
}

// curveText writes a curve in a few lines, with the proposed limit.
func curveText(t *text, d *replay.Demand, noun, proposed string) {
	const most = 9
	units, _, _ := strings.Cut(proposed, "/")
	table := t.table(tabwriter.AlignRight)
	fmt.Fprintf(table, "limit\t%ss affected\tshare\t\n", noun)
	last := int64(-1)
	for i, p := range d.Curve {
		this := strconv.FormatInt(p.Units, 10) == units
		// A line each time that the limit has grown by a half.
		if i > 0 && i < len(d.Curve)-1 && !this && (float64(p.Units) < 1.5*float64(last) || len(d.Curve) > 4*most && p.Affected == 0) {
			continue
		}
		if !this {
			last = p.Units
		}
		mark := ""
		if this {
			mark = "   proposed"
		}
		fmt.Fprintf(table, "%d/%s\t%d\t%.2f%%\t%s\n", p.Units, d.Window, p.Affected, 100*p.Share, mark)
	}
	_ = table.Flush() // the text keeps the error
}

// refusedText lists the clients that are refused most, with their part of all requests.
func refusedText(t *text, o *replay.Outcome) {
	if len(o.WorstClients) == 0 {
		return
	}
	t.say("\nRefused most:")
	table := t.table(0)
	for _, w := range o.WorstClients {
		fmt.Fprintf(table, "  %s\t%d requests, %.2f%% of all\t%d refused\n", printable(w.Name), w.Requests, 100*float64(w.Requests)/float64(o.Requests), w.Refused)
	}
	_ = table.Flush() // the text keeps the error
}
