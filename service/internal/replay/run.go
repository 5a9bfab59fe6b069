package replay

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/replay/accesslog"
)

// Run replays the trace through each candidate separately, in parallel. The outcomes are in the order of the
// candidates. Each lists at most the given number of clients and of routes, the most refused first. The
// function name maps a client to the name in the outcome; nil keeps it. The error is [sash.ErrInvalidLimit].
func (t *Trace) Run(candidates []Candidate, most int, name func(client string) string) ([]*Outcome, error) {
	outcomes := make([]*Outcome, len(candidates))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range candidates {
		group.Go(func() (err error) {
			outcomes[i], err = t.run(&candidates[i], most, name)
			return err
		})
	}
	return outcomes, group.Wait()
}

// A tally holds a candidate's counts and its limiters, which use a store on the virtual clock.
type tally struct {
	now      int64
	limiters []*sash.Limiter
	trace    *Trace
	rules    []Rule
	spared   []bool
	out      *Outcome
	clients  []refusedTally
	routes   []refusedTally
	admitted []bool // by event
}

type refusedTally struct {
	requests, refused int64
	until, limited    int64 // when the current limitation ends, and the total so far, in microseconds
}

func (t *Trace) run(c *Candidate, most int, name func(client string) string) (*Outcome, error) {
	s := &tally{
		trace: t, rules: c.rules(), spared: c.spared, out: newOutcome(c), admitted: make([]bool, len(t.events)),
		clients: make([]refusedTally, len(t.clients)), routes: make([]refusedTally, len(t.routes)),
	}
	var err error
	// The store has room for every client, so none is evicted.
	s.limiters, err = c.limiters(memstore.New(&memstore.Options{
		MaxBytes: math.MaxInt64, Now: func() time.Time { return time.UnixMicro(s.now) },
	}))
	if err != nil {
		return nil, err
	}
	for i := range t.events {
		if s.admitted[i], err = s.try(&t.events[i]); err != nil {
			return nil, err
		}
	}
	s.finish(most, name)
	s.sums()
	s.out.Refusals = t.Course(func(i int) bool { return !s.admitted[i] })
	return s.out, nil
}

func (s *tally) sums() {
	admitted := func(i int, units int64) int64 {
		if s.admitted[i] {
			return units
		}
		return 0
	}
	var offered, got usage
	s.trace.slide(ending(time.Minute), func(i int, e *event, sign int64) {
		offered.add(sign * e.cost)
		got.add(admitted(i, sign*e.cost))
	})
	s.out.AllClients = Most{Window: "1m", Offered: offered.most, Admitted: got.most}
	peaks := make(map[time.Duration][]int64)
	for r, rule := range s.rules {
		for _, l := range rule.Limits {
			if l.Period != 0 || rule.Refuses {
				continue
			}
			mine, known := peaks[l.Window]
			if !known {
				mine = s.trace.peaks(ending(l.Window), func(i int, e *event) int64 { return admitted(i, e.cost) })
				peaks[l.Window] = mine
			}
			m := Most{Window: WindowName(l), Limit: l.Units}
			for c, peak := range mine {
				if s.trace.clients[c].rule == r {
					m.Admitted = max(m.Admitted, peak)
				}
			}
			s.out.OneClient = append(s.out.OneClient, m)
		}
	}
}

func (s *tally) try(e *event) (admitted bool, err error) {
	who, where := &s.clients[e.client], &s.routes[e.route]
	who.requests++
	where.requests++
	s.out.Requests++
	if s.spared != nil && s.spared[e.client] {
		return true, nil
	}
	s.now = e.at
	subject := &s.trace.clients[e.client]
	res, err := s.limiters[subject.rule].AllowN(context.Background(), subject.key, e.cost)
	tooMuch := errors.Is(err, sash.ErrCostAboveLimit)
	if err != nil && !tooMuch || err == nil && res.Allowed {
		return err == nil, err
	}
	who.refused++
	where.refused++
	if s.out.Refused++; s.out.Refused == 1 {
		s.out.FirstRefused = time.UnixMicro(e.at).UTC().Format(time.RFC3339Nano)
	}
	if tooMuch { // it can never fit
		s.out.AboveLimit++
		return false, nil
	}
	until := e.at + res.RetryAfter.Microseconds()
	who.limited += max(0, until-max(e.at, who.until))
	who.until = max(who.until, until)
	return false, nil
}

func newOutcome(c *Candidate) *Outcome {
	o := &Outcome{Policy: c.Name, Limits: []string{}, OneClient: []Most{}} // JSON lists are never null
	var algorithms []string
	for _, rule := range c.rules() {
		for _, l := range rule.Limits {
			if name := cmp.Or(l.Name, l.String()); !slices.Contains(o.Limits, name) {
				o.Limits = append(o.Limits, name)
			}
		}
		if name := rule.Options.Algorithm.String(); !slices.Contains(algorithms, name) {
			algorithms = append(algorithms, name)
		}
	}
	o.Algorithm = strings.Join(algorithms, ", ")
	return o
}

func (s *tally) finish(most int, name func(client string) string) {
	o := s.out
	o.RefusedShare = share(o.Refused, o.Requests)
	var limited, clients int64
	for _, c := range s.clients {
		clients += min(1, c.requests)
		o.ClientsLimited += min(1, c.refused)
		limited += c.limited
	}
	o.ClientsLimitedShare = share(o.ClientsLimited, clients)
	o.LimitedSeconds = seconds(limited)
	o.WorstClients = worst(most, s.clients, func(i int) string { return s.trace.clients[i].name })
	o.WorstRoutes = worst(most, s.routes, func(i int) string { return s.trace.routes[i] })
	for i := range o.WorstClients {
		w := &o.WorstClients[i]
		c := &s.trace.clients[w.index]
		w.Statuses, w.UserAgent, w.Crawler = c.mix(), c.agent.Value(), accesslog.Crawler(c.name)
		if name != nil {
			w.Name = name(w.Name)
		}
	}
}

func worst(n int, of []refusedTally, name func(int) string) []Worst {
	all := []Worst{}
	for i, c := range of {
		if c.refused > 0 {
			all = append(all, Worst{Name: name(i), Requests: c.requests, Refused: c.refused, LimitedSeconds: seconds(c.limited), index: i})
		}
	}
	slices.SortFunc(all, func(a, b Worst) int { return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Name, b.Name)) })
	return slices.Clip(all[:min(n, len(all))])
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func seconds(us int64) float64 { return float64(us) / 1e6 }

// An Outcome is the result of replaying the trace through one candidate.
type Outcome struct {
	// Limits are the candidate's limits, as written.
	Limits    []string `json:"limits"`
	Policy    string   `json:"policy,omitempty"`
	Algorithm string   `json:"algorithm"`

	// Requests counts the requests of the log. Refused counts those whose first attempt was refused.
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	// FirstRefused is the time of the first refusal, such as when a quota ran out, in RFC 3339. It is empty without refusals.
	FirstRefused string `json:"first_refused,omitempty"`
	// AboveLimit counts refused requests that cost more units than a limit has. They can never fit.
	AboveLimit int64 `json:"above_limit"`
	// ClientsLimited counts the clients that were refused at least once.
	ClientsLimited      int64   `json:"clients_limited"`
	ClientsLimitedShare float64 `json:"clients_limited_share"`
	// LimitedSeconds is the total time that clients were limited, from a refusal until the request would fit.
	LimitedSeconds float64 `json:"limited_seconds"`

	WorstClients []Worst `json:"worst_clients"`
	WorstRoutes  []Worst `json:"worst_routes"`

	// OneClient is the most units of one client in a sliding window of each limit. Exact algorithms never exceed the limit.
	OneClient []Most `json:"one_client"`
	// AllClients is the most units that all clients together requested, and the most that were admitted, in any minute.
	AllClients Most `json:"all_clients"`
	// Refusals are the refused requests over time.
	Refusals Course `json:"-"`
}

// A Worst is a client or a route and its refusals.
type Worst struct {
	Name           string  `json:"name"`
	Requests       int64   `json:"requests"`
	Refused        int64   `json:"refused"`
	LimitedSeconds float64 `json:"limited_seconds,omitempty"`

	// These describe a client: the shares of its response statuses, such as "200 97%, 404 3%", the user agent
	// of its first request, and the crawler that its address or host name belongs to.
	Statuses  string `json:"statuses,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`
	Crawler   string `json:"crawler,omitempty"`

	index int
}

// A Most is the largest number of units in any window of one length.
type Most struct {
	Window   string `json:"window"`
	Offered  int64  `json:"offered,omitempty"`
	Admitted int64  `json:"admitted"`
	Limit    int64  `json:"limit,omitempty"`
}
