package replay

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/sash"
)

// RunOptions are the options of Run. The zero value is the default.
type RunOptions struct {
	// Worst is how many of the most refused clients and routes are listed. Zero means 5, and a negative number none.
	Worst int
	// Name returns the name of a client in outcomes. Nil leaves names unchanged.
	Name func(client string) string
	// Partial returns what is known when the context ends, in place of its error: outcomes with Partial set.
	Partial bool
}

func (o *RunOptions) name(client string) string {
	if o == nil || o.Name == nil {
		return client
	}
	return o.Name(client)
}

// Run replays the trace through every candidate separately, as many in parallel as there are processors. The outcomes are
// in the order of the candidates. The error is [sash.ErrInvalidLimit], or the context's, unless opts.Partial is set.
func (t *Trace) Run(ctx context.Context, candidates []Candidate, opts *RunOptions) ([]*Outcome, error) {
	opts = cmp.Or(opts, &RunOptions{})
	outcomes, failed := make([]*Outcome, len(candidates)), make([]error, len(candidates))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(candidates), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(candidates)); i = next.Add(1) - 1 {
				outcomes[i], failed[i] = t.run(ctx, &candidates[i], opts)
			}
		})
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// A tally holds the counts of one candidate.
type tally struct {
	*bench
	trace     *Trace
	candidate *Candidate
	out       *Outcome
	clients   []clientTally
	trailing  trailing
	routes    []int64 // refused
	routeAll  []int64
	offered   *rate // units of all attempts
	calls     *rate // of the store
	admitted  *rate
	alive     []uint32 // per client: the charges that keep its key alive
}

type clientTally struct {
	requests, refused int64
	until, limited    int64 // end of the current limitation; total so far, in microseconds
}

func (t *Trace) run(ctx context.Context, c *Candidate, opts *RunOptions) (*Outcome, error) {
	b, err := t.bench(c)
	if err != nil {
		return nil, err
	}
	keep := c.keep()
	lives := keep // how long a key lives after its last charge
	if a := c.rules()[0].Options.Algorithm; a == sash.SlidingLog || a == sash.SlidingBuckets {
		lives = 2 * keep
	}
	s := &tally{
		bench: b, trace: t, candidate: c, out: newOutcome(c),
		clients: make([]clientTally, len(t.clients)), routes: make([]int64, len(t.routes)), routeAll: make([]int64, len(t.routes)),
		offered: newRate(rateLengths...), admitted: newRate(append(slices.Clone(rateLengths), keep, lives)...),
		calls: newRate(rateLengths[0]), alive: make([]uint32, len(t.clients)),
	}
	s.trailing = newTrailing(c, len(t.clients), s.admitted)
	// These are current numbers; most keeps the greatest.
	s.admitted.windows[len(rateLengths)].left = func(charge) { s.out.Redis.Entries-- }
	s.admitted.windows[len(rateLengths)+1].left = func(gone charge) {
		if s.alive[gone.client]--; s.alive[gone.client] == 0 {
			s.out.Redis.Keys--
		}
	}
	var most Redis
	whole := context.WithoutCancel(ctx) // a request is decided, or not begun
	err = t.each(ctx, func(e *event) error {
		return s.try(whole, e, &most)
	})
	s.out.Partial = opts.Partial && err != nil && ctx.Err() != nil
	if err != nil && !s.out.Partial {
		return nil, err
	}
	s.out.Redis.Keys, s.out.Redis.Entries = most.Keys, most.Entries
	s.finish(opts)
	return s.out, nil
}

// rateLengths are the windows over which the units of all clients are summed.
var rateLengths = []int64{time.Second.Microseconds(), time.Minute.Microseconds(), time.Hour.Microseconds()}

// try decides on one request and counts its outcome.
func (s *tally) try(ctx context.Context, e *event, most *Redis) error {
	who := &s.clients[e.client]
	who.requests++
	s.out.Requests++
	s.routeAll[e.route]++
	s.offered.add(charge{e.at, e.cost, e.client})
	res, err := s.decide(ctx, e.at, e, e.cost)
	tooMuch := errors.Is(err, sash.ErrCostAboveLimit)
	if err != nil && !tooMuch {
		return err
	}
	if !tooMuch {
		s.calls.add(charge{e.at, 1, e.client})
	}
	if err == nil && res.Allowed {
		s.admit(e, most)
		return nil
	}
	who.refused++
	s.routes[e.route]++
	if s.out.Refused++; s.out.Refused == 1 {
		s.out.FirstRefused = time.UnixMicro(e.at).UTC().Format(time.RFC3339Nano)
	}
	if tooMuch { // it can never fit
		s.out.AboveLimit++
		return nil
	}
	if by, ok := res.RefusedBy(); ok {
		s.out.RefusedBy[limitName(by.Limit)]++
	}
	until := e.at + res.RetryAfter.Microseconds()
	who.limited += max(0, until-max(e.at, who.until))
	who.until = max(who.until, until)
	return nil
}

func (s *tally) admit(e *event, most *Redis) {
	c := charge{e.at, e.cost, e.client}
	if s.alive[e.client]++; s.alive[e.client] == 1 {
		s.out.Redis.Keys++
	}
	s.out.Redis.Entries++
	s.admitted.add(c)
	most.Keys, most.Entries = max(most.Keys, s.out.Redis.Keys), max(most.Entries, s.out.Redis.Entries)
	s.trailing.count(c)
}

func newOutcome(c *Candidate) *Outcome {
	o := &Outcome{ // JSON lists are never null
		Policy: c.Name, RefusedBy: make(map[string]int64), Limits: []string{}, OneClient: []Most{},
	}
	var algorithms []string
	for _, rule := range c.rules() {
		for _, name := range limitNames(rule.Limits) {
			if !slices.Contains(o.Limits, name) {
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

func limitName(l sash.Limit) string { return limitNames([]sash.Limit{l})[0] }

// finish returns the outcome of the counts.
func (s *tally) finish(opts *RunOptions) {
	o := s.out
	o.RefusedShare = share(o.Refused, o.Requests)
	var limited, clients int64
	for i := range s.clients {
		if s.clients[i].requests > 0 {
			clients++
		}
		if s.clients[i].refused > 0 {
			o.ClientsLimited++
		}
		limited += s.clients[i].limited
	}
	o.ClientsLimitedShare = share(o.ClientsLimited, clients)
	o.LimitedSeconds = seconds(limited)
	o.WorstClients, o.WorstRoutes = s.worst(opts)
	for i, l := range rateLengths {
		o.AllClients = append(o.AllClients, Most{
			Window: windowName(time.Duration(l * 1000)), Offered: s.offered.windows[i].most, Admitted: s.admitted.windows[i].most,
		})
	}
	s.trailing.finish(s)
	o.Redis.CallsInSecond = s.calls.windows[0].most
	o.Redis.Calls = o.Requests - o.AboveLimit // requests that can never fit make no call
	o.Redis.Bytes = redisBytes(s.candidate.rules()[0].Options.Algorithm, o.Redis.Keys, o.Redis.Entries)
}

func (s *tally) worst(opts *RunOptions) (clients, routes []Worst) {
	n := max(0, cmp.Or(opts.Worst, 5))
	clients, routes = []Worst{}, []Worst{}
	for i := range s.clients {
		if c := &s.clients[i]; c.refused > 0 {
			clients = append(clients, Worst{Name: s.trace.clients[i].name, Requests: c.requests, Refused: c.refused, LimitedSeconds: seconds(c.limited), client: i})
		}
	}
	for i, refused := range s.routes {
		if refused > 0 {
			routes = append(routes, Worst{Name: s.trace.routes[i], Requests: s.routeAll[i], Refused: refused})
		}
	}
	for _, list := range []*[]Worst{&clients, &routes} {
		slices.SortFunc(*list, func(a, b Worst) int { return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Name, b.Name)) })
		*list = slices.Clip((*list)[:min(n, len(*list))])
	}
	for i := range clients {
		clients[i].Name = opts.name(clients[i].Name)
	}
	return clients, routes
}

// redisBytes estimates the memory of keys, from MEMORY USAGE of small and of full ones.
func redisBytes(a sash.Algorithm, keys, entries int64) int64 {
	switch a {
	case sash.SlidingLog, sash.SlidingBuckets:
		return 200*keys + 16*entries
	case sash.SortedSetLog:
		if entries > 128*keys { // then they are no longer listpacks
			return 120 * entries
		}
		return 100*keys + 32*entries
	}
	return 120 * keys
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func seconds(us int64) float64 { return float64(us) / 1e6 }
