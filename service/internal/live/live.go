// Package live counts what becomes of requests, by rule, and how often in the last seconds: for those who watch a
// service. Its memory is bounded by the rules of the configuration, and nothing in it comes from requests.
package live

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

const (
	// Step is how often rates are made anew.
	Step = time.Second
	// Span is what a rate is the mean of, when the service runs that long.
	Span = 10 * time.Second
	// Past is how far back the history goes.
	Past = 5 * time.Minute
	// maxRules is the most rules that are told apart; what comes after them is one line, Other.
	maxRules = 1000
)

// Names of lines that are no rule of the configuration.
const (
	NoRule  = "(no rule)"           // nothing limits the request
	Brought = "(limit of requests)" // requests that bring their limit
	Other   = "(other rules)"       // beyond the bound
)

// By has one number an outcome. Of rules it is of the parts of requests that met the rule; a part that had room is
// Allowed, also where another part refused the request.
type By[N int64 | float64] struct {
	Allowed N `json:"allowed"`
	Refused N `json:"refused"`
	Banned  N `json:"banned"`
	Shadow  N `json:"shadow"`  // no room, and allowed because the rule is only tried out
	Failed  N `json:"error"`   // no decision: the store did not answer
	Invalid N `json:"invalid"` // a wrong request; of no rule
}

// A Line is one rule, or all of them.
type Line struct {
	Domain string      `json:"domain"`
	Rule   string      `json:"rule"` // its name in statistics; empty for the line of all requests
	Count  By[int64]   `json:"count"`
	Rate   By[float64] `json:"rate"` // a second, over the last Span
}

// A Snapshot is how things are at an instant.
type Snapshot struct {
	At    time.Time
	Since time.Time // when counting began
	// Requests counts requests, and Rules what each rule was asked: the most asked of late first.
	Requests Line
	Rules    []Line
	// Second is what became of requests in the last Step.
	Second By[int64]
}

// A Counter counts. It is safe for concurrent use. Make it with New.
type Counter struct {
	since time.Time
	all   series

	mu     sync.RWMutex
	rules  map[name]*series         // guarded by mu
	known  map[*config.Rule]*series // guarded by mu: the same, found faster
	latest Snapshot                 // guarded by mu
	past   []By[int64]              // guarded by mu: the latest is the last
	next   chan struct{}            // guarded by mu: closed when latest changes
	done   chan struct{}            // closed when nothing will change any more
}

type name struct{ domain, rule string }

// New returns a counter. Its Observe is a decide.Observer, and Run has to run for rates and for Next.
func New() *Counter {
	now := time.Now()
	return &Counter{
		since: now, latest: Snapshot{At: now, Since: now, Rules: []Line{}},
		rules: make(map[name]*series), known: make(map[*config.Rule]*series),
		next: make(chan struct{}), done: make(chan struct{}),
	}
}

// Observe counts a request.
func (c *Counter) Observe(_ context.Context, o *decide.Observation) {
	c.all.counts[outcomeOf(o)].Add(1)
	if o.Err != nil && outcomeOf(o) == invalid {
		return
	}
	for i := range o.Answers {
		a := &o.Answers[i]
		if a.Units >= 0 && !a.Replaced {
			c.series(o.Domain, a).counts[partOf(o, a)].Add(1)
		}
	}
}

// series finds the counters of what an answer is about.
func (c *Counter) series(domain string, a *decide.Answer) *series {
	is := name{domain, NoRule}
	switch {
	case a.Rule != nil:
		c.mu.RLock()
		s := c.known[a.Rule]
		c.mu.RUnlock()
		if s != nil {
			return s
		}
		is = name{a.Rule.Domain, a.Rule.Metric()}
	case a.Metric != "":
		is.rule = Brought
	default:
		is.domain = "" // it may be any that requests name
	}
	c.mu.RLock()
	s := c.rules[is]
	c.mu.RUnlock()
	if s != nil && a.Rule == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s = c.rules[is]; s == nil {
		if len(c.rules) >= maxRules {
			is = name{"", Other}
		}
		if s = c.rules[is]; s == nil {
			s = &series{}
			c.rules[name{strings.Clone(is.domain), is.rule}] = s
		}
	}
	if a.Rule != nil {
		if len(c.known) >= 2*maxRules {
			clear(c.known) // rules of configurations that were in use before
		}
		c.known[a.Rule] = s
	}
	return s
}

// Run makes the rates, every Step until the context ends. It returns nil, and nobody waits for Next any more.
func (c *Counter) Run(ctx context.Context) error {
	defer close(c.done)
	ticker := time.NewTicker(Step)
	defer ticker.Stop()
	c.sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			c.sample(now)
		}
	}
}

func (c *Counter) sample(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	snap := Snapshot{At: now, Since: c.since, Rules: make([]Line, 0, len(c.rules))}
	before := c.all.last()
	snap.Requests = c.all.sample(now)
	snap.Second = minus(snap.Requests.Count, before)
	for is, s := range c.rules {
		line := s.sample(now)
		line.Domain, line.Rule = is.domain, is.rule
		snap.Rules = append(snap.Rules, line)
	}
	slices.SortFunc(snap.Rules, busier)
	if c.past = append(c.past, snap.Second); len(c.past) > int(Past/Step) {
		c.past = slices.Delete(c.past, 0, 1)
	}
	c.latest = snap
	close(c.next)
	c.next = make(chan struct{})
}

// Now returns the latest snapshot.
func (c *Counter) Now() Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.latest
}

// History returns what became of requests in each Step of the Past, the latest last, up to the latest snapshot.
func (c *Counter) History() []By[int64] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.past)
}

// Next waits for the next snapshot. It is false when the context or Run has ended.
func (c *Counter) Next(ctx context.Context) (Snapshot, bool) {
	c.mu.RLock()
	next := c.next
	c.mu.RUnlock()
	select {
	case <-next:
		return c.Now(), true
	case <-c.done:
	case <-ctx.Done():
	}
	return Snapshot{}, false
}
