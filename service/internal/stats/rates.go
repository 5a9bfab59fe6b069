package stats

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
)

const (
	// Step is the time between two snapshots.
	Step = time.Second
	// meanOver is the time over which a rate is the mean, once the service has run that long.
	meanOver = 10 * time.Second
	// historyOf is the time that History covers.
	historyOf = 5 * time.Minute
	// maxSeries is the most rules that a snapshot lists separately. Others add up to one series, others.
	maxSeries = 1000
)

// Names of series that are no rule of the configuration.
const (
	unlimited = "(no rule)"           // of requests that nothing limits
	ofRequest = "(limit of requests)" // of request limits
	others    = "(other rules)"
)

// Counts has one number for each outcome: of requests, or of the parts of requests that a rule applied to. A part that
// had room is Allowed, also when another part refused the request.
type Counts[N int64 | float64] struct {
	Allowed   N `json:"allowed"`
	Uncounted N `json:"uncounted"` // let through while the store did not answer; nothing counts it
	Refused   N `json:"refused"`
	Banned    N `json:"banned"`
	Shadow    N `json:"shadow"`  // no room, and allowed because the rule is in shadow mode
	Failed    N `json:"error"`   // no decision: the store did not answer
	Invalid   N `json:"invalid"` // a wrong request; of no rule
	// Local is how many of these this instance decided over its share, while the store did not answer.
	Local N `json:"local"`
}

// Sum returns the sum of all outcomes.
func (c Counts[N]) Sum() N {
	return c.Allowed + c.Uncounted + c.Refused + c.Banned + c.Shadow + c.Failed + c.Invalid
}

// combine applies f to each outcome of x and y.
func combine[N, M int64 | float64](x, y Counts[N], f func(x, y N) M) Counts[M] {
	return Counts[M]{
		f(x.Allowed, y.Allowed), f(x.Uncounted, y.Uncounted), f(x.Refused, y.Refused), f(x.Banned, y.Banned),
		f(x.Shadow, y.Shadow), f(x.Failed, y.Failed), f(x.Invalid, y.Invalid), f(x.Local, y.Local),
	}
}

func minus(x, y Counts[int64]) Counts[int64] {
	return combine(x, y, func(x, y int64) int64 { return x - y })
}

// A Series is the counts and rates of one rule, or of all requests.
type Series struct {
	Domain string          `json:"domain"`
	Rule   string          `json:"rule"` // its name in statistics; empty for all requests
	Count  Counts[int64]   `json:"count"`
	Rate   Counts[float64] `json:"rate"` // a second, over the last ten seconds
	Share  Share           `json:"share"`
	Queue  Queue           `json:"queue"` // of a rule
	// Candidate is what the rule's candidate refused or would have refused; null if it was never tried.
	Candidate *Tried `json:"candidate"`
}

// Tried is the requests that a candidate was tried on since counting began, and those that it refused, or would have
// refused. Rate has the same a second, over the last ten seconds.
type Tried struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Rate     struct {
		Requests float64 `json:"requests"`
		Refused  float64 `json:"refused"`
	} `json:"rate"`
}

// A Share is the parts of a Rate, from 0 to 1. A part is null when there is nothing that it would be a part of.
type Share struct {
	Refused   *float64 `json:"refused"`   // of the decisions, bans included. Without a decision nothing is refused or allowed
	Uncounted *float64 `json:"uncounted"` // of all
	Failed    *float64 `json:"error"`     // of all
}

func shareOf(rate Counts[float64]) Share {
	part := func(n, of float64) *float64 {
		if of <= 0 {
			return nil
		}
		n /= of
		return &n
	}
	refused, all := rate.Refused+rate.Banned, rate.Sum()
	return Share{Refused: part(refused, refused+rate.Allowed+rate.Shadow), Uncounted: part(rate.Uncounted, all), Failed: part(rate.Failed, all)}
}

// A Snapshot is the state of the counters at an instant.
type Snapshot struct {
	At    time.Time
	Since time.Time // when counting began
	// Requests counts requests. Rules counts the decisions of each rule, the highest rate first.
	Requests Series
	Rules    []Series
	// Last counts the requests of the last Step.
	Last Counts[int64]
	// Latency is that of what the store decided.
	Latency Latency
}

// rates takes a snapshot each Step and keeps what rates and the history need.
type rates struct {
	since time.Time
	ended chan struct{} // closed when Run ends

	mu       sync.RWMutex
	requests samples             // guarded by mu
	latency  latencies           // guarded by mu
	rules    map[ruleID]*samples // guarded by mu: at most maxSeries
	others   samples             // guarded by mu: of rules that are not in rules
	latest   Snapshot            // guarded by mu
	history  []Counts[int64]     // guarded by mu: the latest is the last
	next     chan struct{}       // guarded by mu: closed when latest changes
}

func newRates() rates {
	now := time.Now()
	return rates{
		since: now, latest: Snapshot{At: now, Since: now, Rules: []Series{}},
		rules: make(map[ruleID]*samples), next: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Run takes a snapshot each Step until the context ends, and returns nil. Then Next no longer waits. Run may be called
// once; without it there are no rates.
func (r *Registry) Run(ctx context.Context) error {
	defer close(r.rates.ended)
	ticker := time.NewTicker(Step)
	defer ticker.Stop()
	r.sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			r.sample(now)
		}
	}
}

func (r *Registry) sample(now time.Time) {
	s := &r.rates
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := Snapshot{At: now, Since: s.since, Rules: []Series{}}
	before := s.requests.last()
	snap.Requests = s.requests.add(now, r.requests.counts())
	snap.Last = minus(snap.Requests.Count, before)
	snap.Latency = s.latency.add(r.took[sash.FromStore])
	var rest Counts[int64]
	all := r.rules.All()
	maps.DeleteFunc(s.rules, func(id ruleID, _ *samples) bool { return all[id] == nil })
	for id, c := range all {
		of := s.rules[id]
		if of == nil && len(s.rules) < maxSeries && id != otherRules {
			of = &samples{}
			s.rules[id] = of
		}
		if of == nil {
			rest = combine(rest, c.outcomes.counts(), func(x, y int64) int64 { return x + y })
			continue
		}
		series := of.add(now, c.outcomes.counts())
		series.Queue, series.Candidate = c.queue.now(now), of.try(now, &c.tried)
		series.Domain, series.Rule = id.series()
		snap.Rules = append(snap.Rules, series)
	}
	if rest != (Counts[int64]{}) {
		series := s.others.add(now, rest)
		series.Rule = others
		snap.Rules = append(snap.Rules, series)
	}
	slices.SortFunc(snap.Rules, busier)
	if s.history = append(s.history, snap.Last); len(s.history) > int(historyOf/Step) {
		s.history = slices.Delete(s.history, 0, 1)
	}
	s.latest = snap
	close(s.next)
	s.next = make(chan struct{})
}

// Now returns the latest snapshot.
func (r *Registry) Now() Snapshot {
	r.rates.mu.RLock()
	defer r.rates.mu.RUnlock()
	return r.rates.latest
}

// History returns the counts of requests in each Step of the last five minutes, the latest last.
func (r *Registry) History() []Counts[int64] {
	r.rates.mu.RLock()
	defer r.rates.mu.RUnlock()
	return slices.Clone(r.rates.history)
}

// Next waits for the next snapshot. It returns false when the context or Run has ended.
func (r *Registry) Next(ctx context.Context) (Snapshot, bool) {
	r.rates.mu.RLock()
	next := r.rates.next
	r.rates.mu.RUnlock()
	select {
	case <-next:
		return r.Now(), true
	case <-r.rates.ended:
	case <-ctx.Done():
	}
	return Snapshot{}, false
}

// samples is a ring of the counts of a series over the last meanOver. The zero value is empty.
type samples struct {
	at     [1 + meanOver/Step]time.Time
	counts [1 + meanOver/Step]Counts[int64]
	tried  [1 + meanOver/Step]Tried // without their rates
	newest int
	filled int
}

// last returns the latest counts.
func (s *samples) last() Counts[int64] { return s.counts[s.newest] }

// add adds the counts of an instant, and returns them with their rate.
func (s *samples) add(now time.Time, counts Counts[int64]) Series {
	if s.filled == 0 { // before its first sample, a series was zero
		s.at[0], s.filled = now.Add(-Step), 1
	}
	s.newest = (s.newest + 1) % len(s.at)
	s.at[s.newest], s.counts[s.newest], s.tried[s.newest] = now, counts, Tried{}
	s.filled = min(s.filled+1, len(s.at))
	oldest := s.oldest()
	rate := combine(counts, s.counts[oldest], func(x, y int64) float64 { return perSecond(x-y, now.Sub(s.at[oldest])) })
	return Series{Count: counts, Rate: rate, Share: shareOf(rate)}
}

// try adds what a candidate did to the sample that was added last, and returns it with its rates; nil if it was never tried.
func (s *samples) try(now time.Time, t *tried) *Tried {
	counts := Tried{Requests: int64(t.requests.Load()), Refused: int64(t.refused.Load())}
	if counts.Requests == 0 {
		return nil
	}
	s.tried[s.newest] = counts
	before := s.tried[s.oldest()]
	took := now.Sub(s.at[s.oldest()])
	counts.Rate.Requests = perSecond(counts.Requests-before.Requests, took)
	counts.Rate.Refused = perSecond(counts.Refused-before.Refused, took)
	return &counts
}

func (s *samples) oldest() int { return (s.newest - s.filled + 1 + len(s.at)) % len(s.at) }

// perSecond returns a rate to two decimals.
func perSecond(n int64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return math.Round(100*float64(n)/took.Seconds()) / 100
}

// series returns the domain and the name of a rule's series.
func (id ruleID) series() (domain, rule string) {
	switch {
	case id == ruleID{}:
		return "", unlimited
	case id.rule == decide.OfRequest:
		return id.domain, ofRequest
	}
	return id.domain, id.domain + "." + id.rule
}

// busier orders series by rate, then by count, then by name.
func busier(x, y Series) int {
	return cmp.Or(
		cmp.Compare(y.Rate.Sum(), x.Rate.Sum()), cmp.Compare(y.Count.Sum(), x.Count.Sum()),
		cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.Rule, y.Rule),
	)
}
