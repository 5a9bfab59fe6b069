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
}

// Run replays the trace through every candidate separately, as many in parallel as there are processors. The outcomes are
// in the order of the candidates, and Partial if the context ended. The error is [sash.ErrInvalidLimit].
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
	trace    *Trace
	rules    []Rule
	out      *Outcome
	clients  []refusedTally
	routes   []refusedTally
	admitted []bool // by event
	windows  []*window
}

type refusedTally struct {
	requests, refused int64
	until, limited    int64 // end of the current limitation; total so far, in microseconds
}

// A window is what lies within a length of time that ends now. It counts what enters with a sign of 1, and what leaves
// with -1.
type window struct {
	length int64 // microseconds
	oldest int   // the first event within
	count  func(e *event, admitted bool, sign int64)
}

// usage is a number of units now, and the most so far.
type usage struct{ now, most int64 }

func (u *usage) add(cost int64) {
	u.now += cost
	u.most = max(u.most, u.now)
}

func (t *Trace) run(ctx context.Context, c *Candidate, opts *RunOptions) (*Outcome, error) {
	b, err := t.bench(c)
	if err != nil {
		return nil, err
	}
	s := &tally{
		bench: b, trace: t, rules: c.rules(), out: newOutcome(c), admitted: make([]bool, len(t.events)),
		clients: make([]refusedTally, len(t.clients)), routes: make([]refusedTally, len(t.routes)),
	}
	finish := s.watch()
	whole := context.WithoutCancel(ctx) // a request is decided, or not begun
	err = t.each(ctx, func(e *event) error {
		n := s.out.Requests
		for _, w := range s.windows {
			for ; t.events[w.oldest].at <= e.at-w.length; w.oldest++ { // never e itself
				w.count(&t.events[w.oldest], s.admitted[w.oldest], -1)
			}
		}
		if err := s.try(whole, e); err != nil {
			return err
		}
		for _, w := range s.windows {
			w.count(e, s.admitted[n], 1)
		}
		return nil
	})
	s.out.Partial = err != nil && ctx.Err() != nil
	if err != nil && !s.out.Partial {
		return nil, err
	}
	finish()
	s.finish(opts)
	return s.out, nil
}

// watch adds the windows of what is counted. The function that it returns writes the counts to the outcome.
func (s *tally) watch() (finish func()) {
	var offered, admitted, entries, keys usage
	alive := make([]uint32, len(s.clients)) // the charges that keep each client's key alive
	keep := int64(0)                        // how long a charge can count
	used := make(map[int64][]usage)         // by length of a sliding window, and client
	add := func(length int64, count func(e *event, admitted bool, sign int64)) {
		s.windows = append(s.windows, &window{length: length, count: count})
	}
	for _, rule := range s.rules {
		for _, l := range rule.Limits {
			keep = max(keep, length(l))
			if _, known := used[length(l)]; known || l.Period != 0 || rule.Refuses {
				continue
			}
			mine := make([]usage, len(s.clients))
			used[length(l)] = mine
			add(length(l), func(e *event, admitted bool, sign int64) {
				if admitted {
					mine[e.client].add(sign * e.cost)
				}
			})
		}
	}
	algorithm := s.rules[0].Options.Algorithm
	lives := keep // how long a key lives after its last charge
	if algorithm == sash.SlidingLog || algorithm == sash.SlidingBuckets {
		lives = 2 * keep
	}
	add(keep, func(_ *event, admitted bool, sign int64) {
		if admitted {
			entries.add(sign)
		}
	})
	add(lives, func(e *event, admitted bool, sign int64) {
		if !admitted {
			return
		}
		if alive[e.client] += uint32(sign); sign == 1 && alive[e.client] == 1 || sign == -1 && alive[e.client] == 0 {
			keys.add(sign)
		}
	})
	add(time.Minute.Microseconds(), func(e *event, ok bool, sign int64) {
		offered.add(sign * e.cost)
		if ok {
			admitted.add(sign * e.cost)
		}
	})
	return func() {
		o := s.out
		o.AllClients = Most{Window: "1m", Offered: offered.most, Admitted: admitted.most}
		o.Redis = Redis{Calls: o.Requests - o.AboveLimit, Keys: keys.most, Entries: entries.most} // what can never fit makes no call
		o.Redis.Bytes = redisBytes(algorithm, keys.most, entries.most)
		for r, rule := range s.rules {
			for _, l := range rule.Limits {
				if l.Period != 0 || rule.Refuses {
					continue
				}
				m := Most{Window: windowName(l), Limit: l.Units}
				for c, u := range used[length(l)] {
					if s.trace.clients[c].rule == r {
						m.Admitted = max(m.Admitted, u.most)
					}
				}
				o.OneClient = append(o.OneClient, m)
			}
		}
	}
}

// try decides on one request and counts its outcome.
func (s *tally) try(ctx context.Context, e *event) error {
	who, where := &s.clients[e.client], &s.routes[e.route]
	who.requests++
	where.requests++
	s.out.Requests++
	res, err := s.decide(ctx, e, e.cost)
	tooMuch := errors.Is(err, sash.ErrCostAboveLimit)
	if err != nil && !tooMuch {
		return err
	}
	if err == nil && res.Allowed {
		s.admitted[s.out.Requests-1] = true
		return nil
	}
	who.refused++
	where.refused++
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

func newOutcome(c *Candidate) *Outcome {
	o := &Outcome{Policy: c.Name, RefusedBy: make(map[string]int64), Limits: []string{}, OneClient: []Most{}} // JSON lists are never null
	var algorithms []string
	for _, rule := range c.rules() {
		for _, l := range rule.Limits {
			if name := limitName(l); !slices.Contains(o.Limits, name) {
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

// finish adds what is known of clients and routes.
func (s *tally) finish(opts *RunOptions) {
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
	n := max(0, cmp.Or(opts.Worst, 5))
	o.WorstClients = worst(n, s.clients, func(i int) string { return s.trace.clients[i].name })
	o.WorstRoutes = worst(n, s.routes, func(i int) string { return s.trace.routes[i] })
	for i := range o.WorstClients {
		if opts.Name != nil {
			o.WorstClients[i].Name = opts.Name(o.WorstClients[i].Name)
		}
	}
}

// worst returns at most n of those that were refused, the most refused first.
func worst(n int, of []refusedTally, name func(int) string) []Worst {
	all := []Worst{}
	for i, c := range of {
		if c.refused > 0 {
			all = append(all, Worst{Name: name(i), Requests: c.requests, Refused: c.refused, LimitedSeconds: seconds(c.limited), number: i})
		}
	}
	slices.SortFunc(all, func(a, b Worst) int { return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Name, b.Name)) })
	return slices.Clip(all[:min(n, len(all))])
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
