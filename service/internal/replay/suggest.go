package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// Caps limit how many clients and requests the proposed limits may refuse.
type Caps struct {
	// Clients is the greatest share of the clients that may be refused at some point. 0.001 is one in a thousand.
	Clients float64
	// Requests is the greatest share of the requests that may be refused. Zero means no cap: a few clients that
	// send much of the traffic may then lose most of their requests.
	Requests float64
}

// shareOf returns how many of a number a share allows. It tolerates floating-point error in whole numbers: 0.7% of 1000.
func shareOf(share float64, of int64) int64 { return int64(share*float64(of) + 1e-6) }

// A Suggestion is a pair of limits.
type Suggestion struct {
	Limits []sash.Limit
	// Affected counts the clients that the pair would refuse at some point, and Refused counts the refused requests.
	Affected int
	Refused  int64
	// Allowed is the greatest number of clients that may be affected.
	Allowed int
	// Burst and Sustained are the demands in the short and the long window.
	Burst, Sustained *Demand

	trace *Trace
	heavy []int // the clients, in descending order of their sustained peaks
}

// Suggest proposes one limit over a short window and one over a long window that together stay within the caps.
// A cap is at least 0 and below 1. Neither limit could be smaller unless the other were larger. Without a cap
// on requests, Suggest returns the pair with the smallest product of units; if more than 64 clients may be
// affected, it tries 64 burst limits. With a cap on requests whose costs differ, a smaller limit can refuse
// fewer requests, so a smaller pair may exist.
//
// Suggest does not check whether the trace is long enough for these windows: see [Coverage].
func (t *Trace) Suggest(caps Caps, burst, sustained time.Duration) (*Suggestion, error) {
	if len(t.clients) == 0 {
		return nil, errors.New("no request has a key and a cost, so there is nothing to suggest")
	}
	return t.measure(burst, sustained).With(caps)
}

// With returns the pair for other caps over the same trace and windows.
func (s Suggestion) With(caps Caps) (*Suggestion, error) {
	t, burst, sustained := s.trace, s.Limits[0].Window, s.Limits[1].Window
	s.Allowed = int(shareOf(caps.Clients, int64(len(t.clients))))
	// Every pair within the caps affects only these clients.
	lowest := least(s.Burst.Peaks, s.Allowed)
	able := t.refusable(&s, [2]int64{lowest, least(s.Sustained.Peaks, s.Allowed)})
	most := int64(math.MaxInt64)
	if caps.Requests > 0 {
		most = shareOf(caps.Requests, t.counts.Requests)
	}
	best := math.Inf(1)
	var pair [2]int64
	// The number of clients above the first limit determines how many may be above the second alone. If many
	// clients may be affected, trying a few values is enough.
	for above := 0; above <= s.Allowed; above += max(1, s.Allowed/64) {
		first := least(s.Burst.Peaks, above)
		second := s.second(first)
		if second < 0 {
			continue
		}
		if caps.Requests > 0 { // the smallest limit within the cap, if its product can be the best
			fits := func(second int64) bool { n, _ := s.refuses(able, [2]int64{first, second}, most); return n <= most }
			high := max(second, s.Sustained.Most)
			if bound := math.Exp(best - math.Log(float64(first))); bound < float64(high) {
				high = max(second, int64(bound))
			}
			if !fits(high) {
				continue
			}
			second += int64(sort.Search(int(high-second), func(i int) bool { return fits(second + int64(i)) }))
		}
		if product := math.Log(float64(first)) + math.Log(float64(second)); product < best {
			best, pair = product, [2]int64{first, second}
		}
	}
	if caps.Requests > 0 { // the second limit may leave room for a smaller first one
		pair[0] = lowest + int64(sort.Search(int(max(0, pair[0]-lowest)), func(i int) bool {
			n, c := s.refuses(able, [2]int64{lowest + int64(i), pair[1]}, most)
			return n <= most && c <= s.Allowed
		}))
	}
	s.Limits = []sash.Limit{sash.Every(pair[0], burst), sash.Every(pair[1], sustained)}
	s.Refused, s.Affected = s.refuses(able, pair, math.MaxInt64)
	return &s, errors.Join(s.Limits[0].Validate(), s.Limits[1].Validate())
}

// measure returns the demands in both windows. The second window is the longer one.
func (t *Trace) measure(burst, sustained time.Duration) *Suggestion {
	pair := []sash.Limit{sash.Every(1, burst), sash.Every(1, sustained)}
	s := &Suggestion{Limits: pair, Burst: t.Demand(pair[0]), Sustained: t.Demand(pair[1]), trace: t, heavy: make([]int, len(t.clients))}
	for c := range s.heavy {
		s.heavy[c] = c
	}
	slices.SortFunc(s.heavy, func(a, b int) int { return cmp.Compare(s.Sustained.byClient[b], s.Sustained.byClient[a]) })
	return s
}

// Candidates returns the pair as sliding and as fixed windows. Neither refuses a client whose peaks are within
// the limits, so Run skips the limiter for these clients.
func (s *Suggestion) Candidates() []Candidate {
	spared := make([]bool, len(s.heavy))
	for c := range spared {
		spared[c] = s.Burst.byClient[c] <= s.Limits[0].Units && s.Sustained.byClient[c] <= s.Limits[1].Units
	}
	fixed := sash.Options{Algorithm: sash.FixedWindow}
	return []Candidate{{Limits: s.Limits, spared: spared}, {Limits: s.Limits, Options: fixed, spared: spared}}
}

// second returns the smallest sustained limit that, together with the burst limit, affects no more clients than allowed.
func (s *Suggestion) second(first int64) int64 {
	left := s.Allowed - s.Burst.Affected(first)
	if left < 0 {
		return -1
	}
	for _, c := range s.heavy {
		if s.Burst.byClient[c] > first {
			continue
		}
		if left--; left < 0 { // a sustained limit below the burst limit would make the latter pointless
			return max(first, s.Sustained.byClient[c])
		}
	}
	return first
}

type refusable struct {
	peaks  [2]int64
	events []event
}

// refusable returns the clients above either limit, in descending order of demand.
func (t *Trace) refusable(s *Suggestion, least [2]int64) (all []refusable) {
	numbers := make([]int, len(t.clients)) // positions in all, counted from 1
	for _, c := range s.heavy {
		if peaks := [2]int64{s.Burst.byClient[c], s.Sustained.byClient[c]}; peaks[0] > least[0] || peaks[1] > least[1] {
			all = append(all, refusable{peaks: peaks})
			numbers[c] = len(all)
		}
	}
	for _, e := range t.events {
		if n := numbers[e.client]; n > 0 {
			all[n-1].events = append(all[n-1].events, e)
		}
	}
	return all
}

// refuses returns how many requests and clients a pair of limits refuses, computed without a limiter. Each
// limit must be at least the one that selected the clients. The count stops above the given number of requests.
func (s *Suggestion) refuses(able []refusable, pair [2]int64, most int64) (requests int64, clients int) {
	lengths := [2]int64{s.Limits[0].Window.Microseconds(), s.Limits[1].Window.Microseconds()}
	var admitted []*event
	for _, c := range able {
		switch {
		case requests > most:
			return requests, clients
		case c.peaks[0] <= pair[0] && c.peaks[1] <= pair[1]:
			continue
		}
		clients++
		admitted = admitted[:0]
		var used [2]int64
		var oldest [2]int
		for i := range c.events {
			e, fits := &c.events[i], true
			for w := range pair {
				for ; oldest[w] < len(admitted) && admitted[oldest[w]].at <= e.at-lengths[w]; oldest[w]++ {
					used[w] -= admitted[oldest[w]].cost
				}
				fits = fits && used[w]+e.cost <= pair[w]
			}
			if !fits {
				requests++
				continue
			}
			admitted, used = append(admitted, e), [2]int64{used[0] + e.cost, used[1] + e.cost}
		}
	}
	return requests, clients
}

// holdOutWindows is how many long windows each part of a hold-out must cover. With fewer, the part says little.
const holdOutWindows = 3

// A HoldOut is a proposal made from the first part of a log and tested on the rest. Each part begins with empty
// windows.
type HoldOut struct {
	// Percent is the first part's share of the time, and Until is its end.
	Percent int          `json:"percent"`
	Until   time.Time    `json:"until"`
	Limits  []sash.Limit `json:"limits"`
	First   Judged       `json:"first"`
	Rest    Judged       `json:"rest"`
}

// Judged is the effect of a pair of limits on one part of a log.
type Judged struct {
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	Clients      int     `json:"clients"`
	Limited      int     `json:"clients_limited"`
	LimitedShare float64 `json:"clients_limited_share"`
}

// ErrTooShort means that a log, or a part of one, is too short to judge limits.
var ErrTooShort = errors.New("too short")

// HoldOut proposes limits for the first part of the trace and judges them on the rest. The error is [ErrTooShort].
func (t *Trace) HoldOut(caps Caps, burst, sustained time.Duration) (*HoldOut, error) {
	from, last := t.Span()
	h := &HoldOut{Percent: 70, Until: from.Add(last.Sub(from) / 100 * 70)}
	coverage := t.Coverage()
	var parts [2]*Trace
	for i, ends := range [][2]time.Time{{from, h.Until}, {h.Until, last.Add(time.Microsecond)}} {
		parts[i] = t.subset(func(e *event) bool { return e.at >= ends[0].UnixMicro() && e.at < ends[1].UnixMicro() })
		own := *coverage
		own.events = parts[i].events
		if n := own.Windows(sustained); n < holdOutWindows {
			return nil, fmt.Errorf("%w: from %s to %s the log covers a window of %s %d times, and %d are needed",
				ErrTooShort, ends[0].Format(time.RFC3339), ends[1].Format(time.RFC3339), WindowName(sash.Every(1, sustained)), n, holdOutWindows)
		}
	}
	s, err := parts[0].Suggest(caps, burst, sustained)
	if err != nil {
		return nil, err
	}
	h.Limits, h.First = s.Limits, parts[0].judged(s.Refused, s.Affected)
	rest, units := parts[1].measure(burst, sustained), [2]int64{s.Limits[0].Units, s.Limits[1].Units}
	h.Rest = parts[1].judged(rest.refuses(parts[1].refusable(rest, units), units, math.MaxInt64))
	return h, nil
}

func (t *Trace) judged(refused int64, limited int) Judged {
	j := Judged{Requests: t.counts.Requests, Refused: refused, Clients: len(t.clients), Limited: limited}
	j.RefusedShare, j.LimitedShare = share(refused, j.Requests), share(int64(limited), int64(j.Clients))
	return j
}

// A Candidate is a set of limits to evaluate.
type Candidate struct {
	// Limits apply to every client, unless there are Rules.
	Limits []sash.Limit
	// Options are the limiter's options. The prefix is ignored.
	Options sash.Options
	// Rules replace Limits. Each rule applies to the clients whose Selection has its index.
	Rules []Rule
	// Name is the name of a candidate with rules.
	Name string

	spared []bool // clients that the limits are known not to refuse
}

// A Rule is one rule of a configuration.
type Rule struct {
	Limits  []sash.Limit
	Options sash.Options
	// Refuses means that the rule refuses every request. Demands ignores its limits.
	Refuses bool
}

// ParseLimits parses limits that apply together, such as "20/1s,600/1m". The error is [sash.ErrInvalidLimit].
func ParseLimits(text string) ([]sash.Limit, error) {
	var limits []sash.Limit
	for one := range strings.SplitSeq(text, ",") {
		l, err := sash.ParseLimit(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		l.Name = strings.TrimSpace(one) // as written
		limits = append(limits, l)
	}
	return limits, nil
}

// Check returns an error that is [sash.ErrInvalidLimit] if the candidate's limits are invalid.
func (c *Candidate) Check() error {
	_, err := c.limiters(memstore.New(nil))
	return err
}

func (c *Candidate) rules() []Rule {
	if c.Rules != nil {
		return c.Rules
	}
	return []Rule{{Limits: c.Limits, Options: c.Options}}
}

func (c *Candidate) limiters(store driver.Store) (all []*sash.Limiter, err error) {
	for i, rule := range c.rules() {
		opts := rule.Options
		opts.Prefix = fmt.Sprint(i) // rules share no charges
		l, err := sash.New(store, &opts, rule.Limits...)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// WindowName returns the window of a limit in the form used in limits: 5m, 1h, day@UTC.
func WindowName(l sash.Limit) string {
	_, name, _ := strings.Cut(l.String(), "/")
	return name
}
