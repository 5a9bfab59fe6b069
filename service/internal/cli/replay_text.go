//go:build !sashserver

package cli

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/sash/replay"
)

// replayText writes the summary for a terminal.
func replayText(t *text, r *replayReport) {
	logText(t, &r.logReport)
	t.say("")
	table := t.table(0)
	fmt.Fprintf(table, "limits\talgorithm\tretries\trefused\t%[1]ss limited\ttime limited\tone %[1]s got at most\tall got at most\tRedis, about\n", r.noun())
	for _, o := range r.Candidates {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", called(o, ",")+withReserve(o, ", reserve"), o.Algorithm, o.Retry,
			part(o.Refused, o.RefusedShare), part(o.ClientsLimited, o.ClientsLimitedShare), time.Duration(o.LimitedSeconds*1e9).Round(time.Second),
			oneClient(o), fmt.Sprintf("%d of %d in %s", o.AllClients[1].Admitted, o.AllClients[1].Offered, o.AllClients[1].Window),
			fmt.Sprintf("%s, %d calls", bytesText(o.Redis.Bytes), o.Redis.Calls))
	}
	_ = table.Flush() // the text keeps the error
	if len(r.Demand) > 0 {
		t.say("\nWhat %ss ask for at most, without any limit:", r.noun())
		table = t.table(tabwriter.AlignRight)
		fmt.Fprintln(table, "in any\thalf of them\t90 %\t99 %\t99.9 %\tthe one with most\t")
		for _, d := range r.Demand {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", d.Window, d.P50, d.P90, d.P99, d.P999, d.Most)
		}
		_ = table.Flush()
	}
	for _, o := range r.Candidates {
		outcomeText(t, o)
	}
	for _, o := range r.Candidates {
		daysText(t, r, o)
	}
}

// outcomeText lists the clients and routes that a candidate refuses most.
func outcomeText(t *text, o *replay.Outcome) {
	if len(o.WorstClients) == 0 && (o.Retries == nil || o.Refused == 0) {
		return
	}
	fmt.Fprintf(t, "\n%s by %s%s", called(o, " and "), o.Algorithm, withReserve(o, ", with the reserve"))
	if r := o.Retries; r != nil {
		fmt.Fprintf(t, ", retries %s: %d attempts, %d of them refused; %d requests never admitted; the others waited %gs (median), %gs at most",
			o.Retry, r.Attempts, r.RefusedAttempts, r.GaveUp, r.DelayMedian, r.DelayMost)
	}
	t.say(" (first refused at %s)", o.FirstRefused)
	table := t.table(0)
	for _, w := range o.WorstClients {
		fmt.Fprintf(table, "  %s\t%d of %d refused\tlimited for %v\n", printable(w.Name), w.Refused, w.Requests, time.Duration(w.LimitedSeconds*1e9).Round(time.Second))
	}
	for _, w := range o.WorstRoutes {
		fmt.Fprintf(table, "  %s\t%d of %d refused\t\n", printable(w.Name), w.Refused, w.Requests)
	}
	_ = table.Flush()
}

// withReserve returns words for a candidate that was tried with --reserve.
func withReserve(o *replay.Outcome, words string) string {
	if o.Shares == nil {
		return ""
	}
	return words
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

// daysText lists when a candidate first refused a class of calls on each day.
func daysText(t *text, r *replayReport, o *replay.Outcome) {
	if o.Zone == "" {
		return
	}
	t.say("\n%s by %s%s, by day of %s:", called(o, " and "), o.Algorithm, withReserve(o, " with the reserve"), o.Zone)
	table := t.table(0)
	for _, d := range o.Days {
		class := "all requests"
		if len(r.Reserves) > 0 {
			class = "all others"
		}
		if d.Class > 0 {
			class = printable(r.Reserves[d.Class-1].Class)
		}
		first := "never refused"
		if at, err := time.Parse(time.RFC3339Nano, d.FirstRefused); err == nil { // empty if none was
			first = "first refused at " + at.Format("15:04:05.999999")
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%d of %d units refused\n", d.Day, class, first, d.RefusedUnits, d.Units)
	}
	_ = table.Flush()
}
