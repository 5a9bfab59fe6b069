package logs

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/sash/service/internal/output"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
	"example.com/sash/service/internal/replay/htmlreport"
)

// A logReport describes the log and how it was read.
type logReport struct {
	Requests    int64              `json:"requests"`
	Broken      int64              `json:"broken"`
	Clients     int                `json:"clients"`
	Filtered    int64              `json:"filtered"`
	Unlimited   int64              `json:"unlimited"`
	Late        int64              `json:"out_of_order"`
	Throttled   int64              `json:"already_429"`
	First       string             `json:"first,omitempty"`
	Last        string             `json:"last,omitempty"`
	SpanSeconds float64            `json:"span_seconds"`
	BrokenLines []accesslog.Broken `json:"broken_lines"`
	BrokenShare float64            `json:"broken_share"`

	// Format and Wrapping describe the lines, Key is the key expression, and Client describes it in words.
	Format      string           `json:"format"`
	Wrapping    string           `json:"wrapping,omitempty"`
	Times       string           `json:"times,omitempty"` // how the starts of requests are known
	Key         string           `json:"key"`
	Client      string           `json:"client"`
	Examples    []string         `json:"client_examples"` // empty if clients are hidden
	Cost        string           `json:"cost"`
	Where       string           `json:"where,omitempty"`
	Files       []*logFile       `json:"files"`
	Notes       []string         `json:"notes"`
	LogWarnings []replay.Warning `json:"log_warnings"`
	Verdict     string           `json:"verdict"`

	lines int64
}

const (
	timeForm     = "2006-01-02T15:04:05.999999Z07:00"
	mostExamples = 3
)

// quoted matches a value of the log in the reason why a line is broken.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

func (r *logReading) report(trace *replay.Trace) logReport {
	for i := range r.stats.First {
		if b := &r.stats.First[i]; r.hide { // they contain the address
			b.Text, b.Reason = "", quoted.ReplaceAllString(b.Reason, `"..."`)
		}
	}
	counts := trace.Counts()
	report := logReport{
		Requests: counts.Requests, Broken: r.stats.Broken, Clients: trace.Clients(), Filtered: counts.Filtered,
		Unlimited: counts.Unlimited, Late: counts.Late, Throttled: counts.Throttled, BrokenLines: append([]accesslog.Broken{}, r.stats.First...),
		BrokenShare: float64(r.stats.Broken) / float64(max(r.stats.Lines, 1)), Format: r.stats.Format, Wrapping: r.stats.Wrapping,
		Times: r.stats.Times,
		Key:   r.expressions.Key, Client: r.client(), Examples: []string{}, Cost: cmp.Or(r.expressions.Cost, "1"), Where: r.expressions.Where,
		Files: r.files, Notes: append([]string{}, r.stats.Notes...), lines: r.stats.Lines,
	}
	if r.policy.file != "" {
		report.Key = ""
		if !r.policy.costs {
			report.Cost = "that of the rule"
		}
	}
	if first, last := trace.Span(); !first.IsZero() {
		report.First, report.Last, report.SpanSeconds = first.Format(timeForm), last.Format(timeForm), last.Sub(first).Seconds()
	}
	if !r.hide {
		report.Examples = append(report.Examples, trace.Busiest(mostExamples)...)
	}
	report.LogWarnings = append([]replay.Warning{}, r.survey.Warnings(counts, trace.Clients(), r.expressions.Key, r.hide)...)
	warn := func(sign, format string, args ...any) {
		report.LogWarnings = append(report.LogWarnings, replay.Warning{Sign: sign, Text: fmt.Sprintf(format, args...)})
	}
	r.check(&report, warn)
	twice := false
	for i, f := range r.files {
		j := slices.IndexFunc(r.files[:i], func(other *logFile) bool { return other.Requests == f.Requests && other.times == f.times })
		if j >= 0 && f.Requests > 0 {
			twice = true
			warn("twice", "%s has the same %d requests as %s. They count twice, so limits come out too high. Name one of the files.",
				f.name(), f.Requests, r.files[j].name())
		}
		if f.Damaged != "" {
			warn("damaged", "%s: %s after %s, which are counted. Copy the file again, or unpack it to see what is there.",
				f.name(), f.Damaged, output.Count(f.Requests+f.Broken, "line"))
		}
	}
	if !twice && counts.Requests >= 100 && trace.Twins() > twinShare {
		warn("twice", "Nearly all of %d requests have a twin of the same time, client and route. If the log was written twice, limits come out twice "+
			"too high. Leave the copies out, such as by sort -u.", counts.Requests)
	}
	report.Verdict = "the log can be trusted"
	if n := len(report.LogWarnings); n > 0 {
		report.Verdict = fmt.Sprintf("do not trust the numbers below before this is mended (%s)", output.Count(int64(n), "warning"))
	}
	return report
}

const (
	badShare    = 0.01
	shortLog    = 23 * time.Hour // a file of a day may begin and end with a quiet half hour
	twinShare   = 0.9
	behindShare = 0.1
	fewPeers    = 16
	peerShare   = 0.001
)

// check warns of what makes answers about a log wrong. Each warning gives the extent, the effect and the remedy.
func (r *logReading) check(report *logReport, warn func(sign, format string, args ...any)) {
	s, all := r.stats, float64(r.stats.Records)
	behind := int64(0)
	for _, n := range s.Peers {
		behind += n
	}
	trust := "--trusted-proxies NETWORKS"
	if !r.hide {
		trust = "--trusted-proxies " + proxies(s.Peers, behind)
	}
	text := fmt.Sprintf("%d of %d lines name another client than their peer, and come from %s. If these are your proxies, all who are behind "+
		"one count as one client, and limits come out far too high: %s", behind, s.Records, output.Count(int64(len(s.Peers)), "peer"), trust)
	switch {
	case !r.selector.ByAddress():
	case float64(behind) > behindShare*all:
		warn("proxies", "%s", text)
	case behind > 0 && len(s.Peers) <= fewPeers:
		report.Notes = append(report.Notes, text)
	}
	for _, m := range r.selector.Missing() {
		if m.Field == "remote_address" && float64(m.Records) > badShare*float64(m.Of) {
			warn("addresses", "%s and do not count, so limits come out too low. Name the field that has it: --field remote_address=NAME", m)
		} else {
			report.Notes = append(report.Notes, m.String()+".")
		}
	}
	if s.Messages > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("%d of %d lines are messages of the server and no requests.", s.Messages, s.Lines))
	}
	if report.BrokenShare > badShare {
		b := s.First[0]
		warn("broken", "%s of %d lines could not be read, the first at %s:%d: %s. What they asked for is missing, so limits come out too low. "+
			"Give the lines of each format as a file of its own, or the format with --log-format.",
			part(s.Broken, report.BrokenShare), s.Lines, b.File, b.Line, b.Reason)
	}
	if float64(s.Ends) > badShare*all {
		warn("ends", "The times of %d of %d lines count as ends of requests, as nginx writes them, without durations of a known unit. Slow requests that began "+
			"apart can end together, so limits come out too high, and replays refuse what would pass. Log $msec and $request_time, and give "+
			"the format with --log-format; of Apache, give its LogFormat; a column of starts is called start_time.", s.Ends, s.Records)
	}
	if span := r.survey.Span(); span < shortLog {
		older := ", the older files."
		if file := r.files[0].Name; strings.HasSuffix(file, ".log") {
			older = fmt.Sprintf(": %s.1 %[1]s", file)
		}
		warn("short", "The log lasts %s, less than a day, and may lack the busiest hours, so limits come out too low. "+
			"Name the files before it too%s",
			secondsText(span.Seconds()), older)
	}
}

// proxies returns addresses for --trusted-proxies: one by one if they are few, or else in small networks. It leaves out
// peers of few lines, which may have forged forwarded addresses. If too many are left, it returns the word NETWORKS.
func proxies(peers map[string]int64, behind int64) string {
	for _, bits := range [][2]int{{32, 128}, {24, 64}, {16, 48}} {
		networks := make(map[string]bool)
		for peer, n := range peers {
			address, _ := netip.ParseAddr(peer) // a host name yields an invalid prefix
			address = address.Unmap()
			if network, _ := address.Prefix(bits[address.BitLen()/128]); network.IsValid() && float64(n) >= peerShare*float64(behind) {
				networks[network.String()] = true
			}
		}
		if len(networks) > 0 && len(networks) <= fewPeers {
			return strings.Join(slices.Sorted(maps.Keys(networks)), ",")
		}
	}
	return "NETWORKS"
}

func (r *logReading) client() string {
	describe := func(key string) string {
		words := replay.Describe(key)
		if r.stats.Client == "" {
			return words
		}
		return strings.Replace(words, "the address", "the address in "+r.stats.Client, 1)
	}
	if r.policy.file == "" {
		return describe(r.expressions.Key)
	}
	var parts []string
	for _, entry := range r.policy.entries {
		key, value, _ := strings.Cut(entry, "=")
		parts = append(parts, fmt.Sprintf("%s (entry %s)", describe(value), key))
	}
	return strings.Join(parts, " with ")
}

// noun returns the word for the log's clients. For a key such as prefix(remote_address, 24), they are networks.
func (r *logReport) noun() string {
	if strings.HasPrefix(strings.TrimSpace(r.Key), "prefix(") {
		return "network"
	}
	return "client"
}

func (r *logReport) clients(n int64) string { return output.Count(n, r.noun()) }

func (r *logReport) read() []string {
	format, broken := r.Format, "none broken"
	if r.Wrapping != "" {
		format += " in " + r.Wrapping
	}
	if r.Broken > 0 {
		broken = part(r.Broken, r.BrokenShare) + " broken"
	}
	client := "A client is " + r.Client
	if r.Key != "" {
		client += " (--key " + shellText(r.Key) + ")"
	}
	for i, name := range r.Examples {
		client += []string{", such as ", ", "}[min(i, 1)] + output.Printable(name)
	}
	requests := fmt.Sprintf("%d requests of %s in %s, from %s to %s", r.Requests, r.clients(int64(r.Clients)), secondsText(r.SpanSeconds), r.First, r.Last)
	if r.Times != "" {
		requests += ", by their start (" + r.Times + ")"
	}
	lines := []string{fmt.Sprintf("Read as %s: %s of %s, %s.", format, output.Count(r.lines, "line"), filesText(r.Files), broken), client + ".", requests}
	var more []string
	for i, n := range []int64{r.Filtered, r.Unlimited, r.Late, r.Throttled} {
		if n > 0 {
			more = append(more, fmt.Sprintf("%d %s", n, []string{"left out by --where", "without a key, cost or rule",
				"after a later one in the log: decided in time order", "answered with 429 already"}[i]))
		}
	}
	if len(more) > 0 {
		lines = append(lines, "("+strings.Join(more, "; ")+")")
	}
	return lines
}

func logText(t *output.Text, r *logReport) {
	for _, line := range r.read() {
		t.Say("%s", line)
	}
	t.Say("Verdict: %s.", r.Verdict)
	for _, w := range r.LogWarnings {
		t.Say("warning: %s", w.Text)
	}
	for _, note := range r.Notes {
		t.Say("note: %s", note)
	}
	if r.Broken > 0 {
		t.Say("%d lines are broken and were left out; the first:", r.Broken)
	}
	for _, b := range r.BrokenLines {
		line := ""
		if b.Text != "" {
			line = ": " + output.Printable(b.Text)
		}
		t.Say("  %s:%d: %s%s", b.File, b.Line, b.Reason, line)
	}
}

func filesText(files []*logFile) string {
	const most = 5
	var names []string
	for _, f := range files {
		names = append(names, f.name())
	}
	if len(names) > most {
		return fmt.Sprintf("%d files, from %s to %s", len(names), names[0], names[len(names)-1])
	}
	return strings.Join(names, ", ")
}

// page writes the report as HTML. It names clients like the other outputs.
func (r *replayFlags) page(args []string, trace *replay.Trace, candidates []replay.Candidate, report *replayReport) error {
	p := &htmlreport.Page{
		Verdict:  "Verdict: " + report.Verdict + ".",
		Warnings: report.LogWarnings,
		Read:     append(append(report.read(), report.Notes...), "Made "+time.Now().UTC().Format("2006-01-02 15:04 UTC")+" by sash-logs "+output.Version()),
		Command:  "sash-logs",
		Client:   report.noun(),
		Demand:   report.Demand,
		Outcomes: report.Candidates,
		Traffic:  trace.Course(func(int) bool { return true }),
		Caveats:  trace.Caveats(candidates...),
	}
	for _, arg := range args {
		p.Command += " " + shellText(arg)
	}
	var html bytes.Buffer
	if err := htmlreport.Write(&html, p); err != nil {
		return err
	}
	return os.WriteFile(r.html, html.Bytes(), 0o600)
}
