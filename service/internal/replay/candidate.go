package replay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A Candidate is limits to evaluate.
type Candidate struct {
	// Limits apply to every client, unless there are Rules.
	Limits []sash.Limit
	// Options of the limiter. The prefix is ignored.
	Options sash.Options
	// Rules apply instead of Limits, each to the clients whose Selection has its index.
	Rules []Rule
	// Name names a candidate with rules.
	Name string
}

// A Rule is one rule of a configuration.
type Rule struct {
	Name    string
	Limits  []sash.Limit
	Options sash.Options
	// Refuses means that the rule refuses everything. Demand leaves its limits out.
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
	_, err := c.deciders(memstore.New(nil))
	return err
}

func (c *Candidate) rules() []Rule {
	if c.Rules != nil {
		return c.Rules
	}
	return []Rule{{Limits: c.Limits, Options: c.Options}}
}

// A decider decides for the clients of one rule.
type decider struct {
	*sash.Limiter
	names []string
}

func (c *Candidate) deciders(store driver.Store) ([]decider, error) {
	all := make([]decider, 0, 1)
	for i, rule := range c.rules() {
		opts := rule.Options
		opts.Prefix = fmt.Sprint(i) // rules share no charges
		l, err := sash.New(store, &opts, rule.Limits...)
		if err != nil {
			return nil, err
		}
		d := decider{Limiter: l, names: limitNames(rule.Limits)}
		all = append(all, d)
	}
	return all, nil
}

func limitNames(limits []sash.Limit) []string {
	names := make([]string, len(limits))
	for i, l := range limits {
		if names[i] = l.Name; l.Name == "" {
			names[i] = l.String()
		}
	}
	return names
}

// Rule returns the rule that applies to a client of the trace; without Rules, the candidate's limits. It returns an error
// if there is no such client.
func (t *Trace) Rule(c Candidate, name string) (Rule, error) {
	number, err := t.number(name)
	if err != nil {
		return Rule{}, err
	}
	return c.rules()[t.clients[number].rule], nil
}

// keep returns how long a charge can count.
func (c *Candidate) keep() int64 {
	longest := int64(0)
	for _, rule := range c.rules() {
		for _, l := range rule.Limits {
			longest = max(longest, length(l))
		}
	}
	return longest
}

// length returns a limit's window in microseconds; for a calendar limit, the longest.
func length(l sash.Limit) int64 {
	const hour = time.Hour
	switch l.Period {
	case sash.CalendarHour:
		return hour.Microseconds()
	case sash.CalendarDay:
		return (25 * hour).Microseconds()
	case sash.CalendarMonth:
		return (31*24*hour + hour).Microseconds()
	}
	return l.Window.Microseconds()
}

// A bench is a candidate's limiters over a store on the virtual clock.
type bench struct {
	now      int64
	store    *memstore.Store
	deciders []decider
	clients  []client
}

func (t *Trace) bench(c *Candidate) (*bench, error) {
	b := &bench{clients: t.clients}
	// The store has room for every client, so none is evicted.
	b.store = memstore.New(&memstore.Options{MaxKeys: 2*len(t.clients) + 4096, Now: func() time.Time { return time.UnixMicro(b.now) }})
	var err error
	b.deciders, err = c.deciders(b.store)
	return b, err
}

// decide decides on an event at an instant, with the given cost.
func (b *bench) decide(ctx context.Context, at int64, e *event, cost int64) (sash.Result, error) {
	b.now = at
	who := &b.clients[e.client]
	return b.deciders[who.rule].AllowN(ctx, who.key, cost)
}
