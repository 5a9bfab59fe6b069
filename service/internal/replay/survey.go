package replay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/replay/accesslog"
)

// The thresholds of warnings. Logs that are read correctly stay far from each of them.
const (
	// fewRequests is the number of requests below which a share means little.
	fewRequests = 100
	// loneRequests is how many requests from one client, and no other client, are suspicious.
	loneRequests = 20
	// strangersShare is the number of clients per request. Addresses of people, crawlers and load balancers
	// recur; a time or an ID in place of the address does not.
	strangersShare = 0.9
	// namelessShare is the share of requests whose client is neither an address nor a host name.
	namelessShare = 0.1
	// secondShare is the share of requests within one second.
	secondShare = 0.5
	// disorderShare is the share of lines that are out of order. Servers write lines within a second of their
	// order; if only the time of a request is known, the request may have been slow.
	disorderShare = 0.001
	rounded       = int64(1_000_000)
	slow          = 120 * rounded
	// A gap is suspicious if it is long, several times as long as any other, and as long as many average
	// pauses. Nights and lunch breaks are not.
	longGap   = 20 * time.Hour
	gapFactor = 5
	gapPauses = 1000
	longSpan  = 10 * 365 * 24 * time.Hour
	binLength = 10 * time.Minute
)

// A Warning is a sign that a log was misread or is misleading. Text says what it means and what to do.
type Warning struct {
	Sign string `json:"sign"`
	Text string `json:"text"`
}

// A Survey looks for signs that a log's clients or times were misread. The zero value is ready. It is not safe for concurrent use.
type Survey struct {
	records     int64
	first, last int64 // the times of all records

	nameless int64  // records whose address is neither an address nor a host name
	example  string // of them

	second, votes, matches int64 // a majority vote over the seconds of the records

	bins map[int64]int64 // the number of records in each binLength

	latest, earliest int64 // the latest and earliest times of writing so far in this file
	late, early      int64 // lines written before the latest time so far, and after the earliest
}

// NextFile begins another file. Its times may be earlier than those of the previous file.
func (s *Survey) NextFile() { s.latest, s.earliest = 0, math.MaxInt64/2 }

// Add examines a record and reports whether a previous line has a later time. Call it in the order of the log.
func (s *Survey) Add(r *accesslog.Record) (late bool) {
	s.records++
	s.first, s.last = min(cmp.Or(s.first, r.Time), r.Time), max(s.last, r.Time)
	if r.RemoteAddress != "" && !isClient(r.RemoteAddress) {
		if s.nameless++; s.nameless == 1 {
			s.example = strings.Clone(r.RemoteAddress)
		}
	}
	switch second := floor(r.Time, 1_000_000); {
	case second == s.second:
		s.votes++
		s.matches++
	case s.votes == 0:
		s.second, s.votes, s.matches = second, 1, 1
	default:
		s.votes--
	}
	if s.bins == nil {
		s.bins = make(map[int64]int64)
	}
	s.bins[floor(r.Time, binLength.Microseconds())]++
	at, slack := r.Written, rounded
	if at == 0 || r.Ended {
		at, slack = r.Time, slow
	}
	if at < s.latest-slack {
		s.late++
	}
	if at > s.earliest+slack {
		s.early++
	}
	late = at < s.latest
	s.latest, s.earliest = max(s.latest, at), min(s.earliest, at)
	return late
}

// Span returns the time from the first record to the last, including records that are not in the trace.
func (s *Survey) Span() time.Duration { return time.Duration(s.last-s.first) * time.Microsecond }

// Warnings returns what is suspicious in the log and in its trace. It accepts a single client if the key is constant, as
// for an upstream's quota. It checks for addresses only under the default key. If hide is set, no warning names a client.
func (s *Survey) Warnings(counts Counts, clients int, key string, hide bool) []Warning {
	var all []Warning
	say := func(sign, format string, args ...any) {
		all = append(all, Warning{sign, fmt.Sprintf(format, args...)})
	}
	byAddress := key == "" || key == defaultKey || key == "remote_address"
	switch {
	case counts.Requests >= fewRequests && float64(clients) >= strangersShare*float64(counts.Requests):
		say("strangers", "%d of %d requests are from a client of their own. Either nobody comes twice, or the client is misread: a time or an ID in place of an address. Look at the examples above; --log-format, --field and --key set what is read.", clients, counts.Requests)
	case clients == 1 && counts.Requests >= loneRequests && !constant.MatchString(key):
		say("one-client", "All %d requests are from one client. It may be a proxy or load balancer in front of the server, or a word that begins every line. The log must have the address of the client itself, such as X-Forwarded-For; --key selects where.", counts.Requests)
	}
	if byAddress && s.records >= fewRequests && float64(s.nameless) >= namelessShare*float64(s.records) {
		example := ""
		if !hide {
			example = fmt.Sprintf(", such as %q", s.example)
		}
		say("not-addresses", "The clients of %d of %d requests are neither addresses nor host names%s. Another field may be in their place: see --log-format, --field and --key.", s.nameless, s.records, example)
	}
	if s.records >= fewRequests && float64(s.matches) > secondShare*float64(s.records) {
		say("one-second", "%d of %d requests have the same second, %s. It may be the time at which the log was written or collected, not that of the requests. Then the log cannot show the effect of any limit. --field time=NAME names another field.",
			s.matches, s.records, instant(s.second*1_000_000))
	}
	if n := min(s.late, s.early); s.records >= fewRequests && float64(n) > disorderShare*float64(s.records) { // the newest may come first
		say("disorder", "%d of %d lines are out of order: several clocks are mixed, one was set, or times have no zone. Requests then look denser or thinner than they were. Give the log of each server as a file of its own (a.log b.log), with times that have a zone.", n, s.records)
	}
	bins := slices.Sorted(maps.Keys(s.bins))
	var longest, second time.Duration
	at := 0
	for i := 1; i < len(bins); i++ {
		switch gap := time.Duration(bins[i]-bins[i-1]-1) * binLength; {
		case gap > longest:
			longest, second, at = gap, longest, i
		case gap > second:
			second = gap
		}
	}
	if len(bins) == 0 {
		return all
	}
	begin := func(i int) string { return instant(bins[i] * binLength.Microseconds()) }
	span := time.Duration(bins[len(bins)-1]-bins[0]) * binLength
	switch {
	case bins[len(bins)-1]-bins[0] > int64(longSpan/binLength):
		say("span", "The log goes from %s to %s. Some lines have the time of a clock that was not set, or another field is in place of the time: see --field time=NAME.", begin(0), begin(len(bins)-1))
	case longest >= longGap && longest >= gapFactor*second && float64(longest) >= gapPauses*float64(span-longest)/float64(s.records):
		say("gap", "No request from about %s to %s (%.1f days), much longer than any other pause. A file is missing, the server was down, or its clock was set. Figures for long windows and for the whole time are too low.", begin(at-1), begin(at), longest.Hours()/24)
	}
	return all
}

func instant(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }

func floor(us, length int64) int64 { return int64(math.Floor(float64(us) / float64(length))) }

// isClient reports whether a text is an address or a host name with a dot, which servers log if they look names up.
func isClient(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || hostName.MatchString(s)
}

var hostName = regexp.MustCompile(`^[\w-][\w.-]*\.[\w.-]*[\w-]$`)

// Coverage is how many windows of each length a log covers.
//
// The log is divided into stretches at silences as long as the window. Each stretch covers as many windows as fit into it,
// and at least one. The next window exceeds the highest of n windows with a chance of 1 in n+1, if all times are alike.
//
// Some logs are samples, such as one minute of each hour: their requests lie in less than a tenth of the minutes in which
// as many requests would lie at random. A stretch of a sample ends at a silence of a minute, and covers only windows that
// fit into it.
type Coverage struct {
	// Busy counts the minutes with a request. Minutes counts all minutes except those in silences of more than a day.
	Busy, Minutes int
	// Sampled reports whether the log looks like samples.
	Sampled bool

	events []event
	tick   int64 // the resolution of times
}

// Coverage returns the coverage of the trace.
func (t *Trace) Coverage() *Coverage {
	const minute, day = 60_000_000, 24 * 60 // microseconds; minutes
	c := &Coverage{events: t.events, tick: 1_000_000}
	if t.fractions {
		c.tick = 0
	}
	latest := make([]int64, len(t.clients)) // the last minute of each client
	visits, last := 0, int64(-day)
	for _, e := range t.events {
		at := e.at/minute + 1
		if at != last {
			c.Busy, c.Minutes = c.Busy+1, c.Minutes+1
			if at-last <= day {
				c.Minutes += int(at - last - 1)
			}
			last = at
		}
		if latest[e.client] != at {
			latest[e.client] = at
			visits++
		}
	}
	expected := float64(c.Minutes) * (1 - math.Exp(-float64(visits)/float64(max(1, c.Minutes))))
	c.Sampled = float64(c.Busy) < expected/10
	return c
}

// Windows returns how many windows of a length the log covers.
func (c *Coverage) Windows(length time.Duration) int {
	gap, least := length.Microseconds(), int64(1)
	if c.Sampled {
		gap, least = min(gap, time.Minute.Microseconds()), 0
	}
	windows, first := int64(0), 0
	for i, e := range c.events {
		if i == len(c.events)-1 || c.events[i+1].at-e.at > max(gap, time.Second.Microseconds()) {
			windows += max(least, (e.at-c.events[first].at+c.tick)/length.Microseconds())
			first = i + 1
		}
	}
	return int(windows)
}

// Caveats returns what the trace cannot show about the candidates, one sentence each.
func (t *Trace) Caveats(candidates ...Candidate) (all []string) {
	c := t.Coverage()
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	first, last := t.Span()
	span := last.Sub(first)
	if !t.fractions {
		say("Times are whole seconds. The order within a second is unknown, so a window of a few seconds is measured to within one second.")
	}
	if c.Sampled {
		say("Only %d of the %d minutes of the log have requests, %d each on average. The log looks sampled or incomplete, and real traffic may be denser.", c.Busy, c.Minutes, t.counts.Requests/int64(c.Busy))
	}
	var said []time.Duration
	limits(candidates, func(_ int, l sash.Limit) {
		if w := l.Window; span < 20*w && !slices.Contains(said, w) {
			said = append(said, w)
			say("The log is %s long. A window of %s fits into it %.1f times, so busier windows are likely to exist.", span.Round(time.Second), WindowName(l), span.Seconds()/w.Seconds())
		}
	})
	if n := len(t.clients); n < 10_000 && n > 1 {
		say("There are %d clients. One of them is %.2f%%, and a smaller share cannot be distinguished from none.", n, 100/float64(n))
	}
	if t.counts.Throttled > 0 {
		say("%d requests were answered with 429. Something limits them already, so clients may want more than the log shows.", t.counts.Throttled)
	}
	if t.counts.Late > 0 {
		say("%d requests came after a later one in the log. Many servers log a request when its response ends, with the time at which it began or ended.", t.counts.Late)
	}
	say("Several people behind one address count as one client, and one person with many addresses as many.")
	say("A log without refusals does not show how clients react to them.")
	say("Requests that never reached the log (held back by a proxy, dropped under load, served from a cache) are missing.")
	return all
}
