package logs

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"example.com/sash/service/internal/replay"
)

// replayText writes the summary for a terminal.
func replayText(t *text, r *replayReport) {
	logText(t, &r.logReport)
	t.say("")
	candidates := sheet{}
	candidates.row("limits", "algorithm", "refused", r.noun()+"s limited", "each for about", "one "+r.noun()+" got at most", "all got at most", "Redis, about")
	for _, o := range r.Candidates {
		candidates.row(called(o, ",")+decided(o), o.Algorithm, part(o.Refused, o.RefusedShare),
			part(o.ClientsLimited, o.ClientsLimitedShare), eachText(o), oneClient(o),
			fmt.Sprintf("%d of %d in %s", o.AllClients.Admitted, o.AllClients.Offered, o.AllClients.Window),
			fmt.Sprintf("%s, %d calls", bytesText(o.Redis.Bytes), o.Redis.Calls))
	}
	candidates.write(t)
	for _, o := range r.Candidates {
		absurdText(t, r.SpanSeconds, o)
	}
	if len(r.Demand) > 0 {
		t.say("\nWhat %ss ask for at most, without any limit:", r.noun())
		demand := sheet{flags: tabwriter.AlignRight}
		demand.row("in any", "half of them", "90 %", "99 %", "99.9 %", "the one with most")
		for _, d := range r.Demand {
			demand.row(d.Window, fmt.Sprint(d.P50), fmt.Sprint(d.P90), fmt.Sprint(d.P99), fmt.Sprint(d.P999), fmt.Sprint(d.Most))
		}
		demand.write(t)
	}
	for _, o := range r.Candidates {
		outcomeText(t, o)
	}
}

// outcomeText lists the clients and routes that a candidate refuses most.
func outcomeText(t *text, o *replay.Outcome) {
	if len(o.WorstClients) == 0 {
		return
	}
	t.say("\n%s by %s (first refused at %s)", called(o, " and "), o.Algorithm, o.FirstRefused)
	table := t.table(0)
	for _, w := range o.WorstClients {
		fmt.Fprintf(table, "  %s\t%d of %d refused\tlimited for %s\n", printable(w.Name), w.Refused, w.Requests, secondsText(w.LimitedSeconds))
	}
	for _, w := range o.WorstRoutes {
		fmt.Fprintf(table, "  %s\t%d of %d refused\t\n", printable(w.Name), w.Refused, w.Requests)
	}
	_ = table.Flush()
}

// eachText returns for how long a client was limited that was limited at all.
func eachText(o *replay.Outcome) string {
	if o.ClientsLimited == 0 {
		return "-"
	}
	return secondsText(o.LimitedSeconds / float64(o.ClientsLimited))
}

// absurdText says what times mean that are longer than the log.
func absurdText(t *text, span float64, o *replay.Outcome) {
	if each := o.LimitedSeconds / float64(max(o.ClientsLimited, 1)); each > span {
		t.say("%s: limited for longer than the log lasts (%s, not %s). A refusal ends when the window of the limit has moved on, and that is after the end of the log.", called(o, ","), secondsText(each), secondsText(span))
	}
	if o.AboveLimit > 0 {
		t.say("%s: %d requests cost more than the whole limit and can never be admitted. Raise the limit, or look at --cost.", called(o, ","), o.AboveLimit)
	}
}

// decided says how far a candidate was replayed that was stopped.
func decided(o *replay.Outcome) string {
	if !o.Partial {
		return ""
	}
	return fmt.Sprintf(" (first %d)", o.Requests)
}

// called returns the configuration's name, or the limits that hold together.
func called(o *replay.Outcome, between string) string {
	return cmp.Or(o.Policy, strings.Join(o.Limits, between))
}

func part(n int64, share float64) string { return fmt.Sprintf("%d (%.2f%%)", n, 100*share) }

func oneClient(o *replay.Outcome) string {
	var all []string
	for _, m := range o.OneClient {
		if m.Admitted == 0 { // a rule that matched no request
			continue
		}
		all = append(all, fmt.Sprintf("%d in %s", m.Admitted, m.Window))
		if len(all) == 3 {
			break
		}
	}
	return strings.Join(all, ", ")
}
