package replay

import (
	"cmp"
	"context"
	"errors"
	"math"
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
	// Days requests the refusals of each day: see [Outcome.Days].
	Days bool
	// Name returns the name of a client in outcomes. Nil leaves names unchanged.
	Name func(client string) string
	// Partial returns what is known when the context ends, in place of its error: outcomes with Partial set.
	Partial bool
	// Progress is called from time to time with the number of requests done over all candidates. Calls may be
	// concurrent.
	Progress func(done int64)
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
	var next, done atomic.Int64
	var group sync.WaitGroup
	for range min(len(candidates), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(candidates)); i = next.Add(1) - 1 {
				outcomes[i], failed[i] = t.run(ctx, &candidates[i], opts, &done)
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
	waiting   *waiting
	delays    map[int64]int64 // how often each: pauses are few different multiples of a millisecond
	days      *days           // nil if not requested
	retries   Retries
}

type clientTally struct {
	requests, refused int64
	until, limited    int64 // end of the current limitation; total so far, in microseconds
}

func (t *Trace) run(ctx context.Context, c *Candidate, opts *RunOptions, done *atomic.Int64) (*Outcome, error) {
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
		calls: newRate(rateLengths[0]), alive: make([]uint32, len(t.clients)), waiting: newWaiting(), delays: make(map[int64]int64),
	}
	s.trailing = newTrailing(c, len(t.clients), s.admitted)
	if opts.Days {
		s.days = newDays(c)
	}
	// These are current numbers; most keeps the greatest.
	s.admitted.windows[len(rateLengths)].left = func(charge) { s.out.Redis.Entries-- }
	s.admitted.windows[len(rateLengths)+1].left = func(gone charge) {
		if s.alive[gone.client]--; s.alive[gone.client] == 0 {
			s.out.Redis.Keys--
		}
	}
	var most Redis
	before := int64(0)
	t = t.WithProgress(func(now int64) {
		if opts.Progress != nil {
			opts.Progress(done.Add(now - before))
		}
		before = now
	})
	whole := context.WithoutCancel(ctx) // a request is decided, or not begun
	err = t.each(ctx, func(e *event) error {
		for a, due := s.waiting.before(e.at); due; a, due = s.waiting.before(e.at) {
			if err := s.try(whole, a, &most); err != nil {
				return err
			}
		}
		return s.try(whole, attempt{event: *e, first: e.at}, &most)
	})
	s.out.Partial = opts.Partial && err != nil && ctx.Err() != nil
	if err != nil && !s.out.Partial {
		return nil, err
	}
	for a, due := s.waiting.before(math.MaxInt64); due && !s.out.Partial; a, due = s.waiting.before(math.MaxInt64) {
		if err := s.try(whole, a, &most); err != nil {
			return nil, err
		}
	}
	s.out.Redis.Keys, s.out.Redis.Entries = most.Keys, most.Entries
	s.finish(opts)
	return s.out, nil
}

// rateLengths are the windows over which the units of all clients are summed.
var rateLengths = []int64{time.Second.Microseconds(), time.Minute.Microseconds(), time.Hour.Microseconds()}

// try decides on one attempt and counts its outcome.
func (s *tally) try(ctx context.Context, a attempt, most *Redis) error {
	who := &s.clients[a.client]
	fresh := a.retries == 0
	if fresh {
		who.requests++
		s.out.Requests++
		s.routeAll[a.route]++
		s.days.asked(&a.event)
	}
	s.retries.Attempts++
	s.offered.add(charge{a.at, a.cost, a.client})
	res, err := s.decide(ctx, a.at, &a.event, a.cost)
	tooMuch := errors.Is(err, sash.ErrCostAboveLimit)
	if err != nil && !tooMuch {
		return err
	}
	if !tooMuch {
		s.calls.add(charge{a.at, 1, a.client})
	}
	if err == nil && res.Allowed {
		s.admit(a, most)
		return nil
	}
	s.retries.RefusedAttempts++
	if fresh {
		s.days.refused(&a.event)
		who.refused++
		s.routes[a.route]++
		if s.out.Refused++; s.out.Refused == 1 {
			s.out.FirstRefused = time.UnixMicro(a.at).UTC().Format(time.RFC3339Nano)
		}
		if tooMuch {
			s.out.AboveLimit++
		}
	}
	if tooMuch { // no retry: it can never fit
		s.retries.GaveUp++
		return nil
	}
	if by, ok := res.RefusedBy(); ok && fresh {
		s.out.RefusedBy[limitName(by.Limit)]++
	}
	until := a.at + res.RetryAfter.Microseconds()
	who.limited += max(0, until-max(a.at, who.until))
	who.until = max(who.until, until)
	if !s.waiting.again(s.candidate.Retry, a, res.RetryAfter) {
		s.retries.GaveUp++
	}
	return nil
}

func (s *tally) admit(a attempt, most *Redis) {
	c := charge{a.at, a.cost, a.client}
	if s.alive[a.client]++; s.alive[a.client] == 1 {
		s.out.Redis.Keys++
	}
	s.out.Redis.Entries++
	s.admitted.add(c)
	most.Keys, most.Entries = max(most.Keys, s.out.Redis.Keys), max(most.Entries, s.out.Redis.Entries)
	if a.retries > 0 {
		s.delays[a.at-a.first]++
	}
	s.trailing.count(c)
}

func newOutcome(c *Candidate) *Outcome {
	o := &Outcome{ // JSON lists are never null
		Policy: c.Name, Retry: c.Retry.String(), Shares: c.Shares, RefusedBy: make(map[string]int64), Limits: []string{}, OneClient: []Most{},
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
	s.days.finish(o)
	if s.candidate.Retry != NoRetry {
		s.retries.DelayMedian, s.retries.DelayMost = delays(s.delays)
		o.Retries = &s.retries
	}
	o.Redis.CallsInSecond = s.calls.windows[0].most
	o.Redis.Calls = s.retries.Attempts - o.AboveLimit // requests that can never fit make no call
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
