package replay

import (
	"fmt"
	"strings"

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
	Limits  []sash.Limit
	Options sash.Options
	// Refuses means that the rule refuses everything. Demands leaves its limits out.
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

// limiters returns the limiter of each rule.
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

// WindowName returns a limit's window as limits write it: 5m, 1h, day@UTC.
func WindowName(l sash.Limit) string {
	_, name, _ := strings.Cut(l.String(), "/")
	return name
}
