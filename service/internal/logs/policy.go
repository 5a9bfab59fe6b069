package logs

import (
	"fmt"
	"slices"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
	"example.com/sash/service/internal/serve"
)

// policyFlags are the flags that send requests of a log through a configuration.
type policyFlags struct {
	file    string
	domain  string
	entries []string
	costs   bool // --cost is given, and replaces the rule's
	cfg     *config.Config
}

// candidates returns the configuration, and, if it has candidates of its own, also the one with all of them promoted.
func (p *policyFlags) candidates() []replay.Candidate {
	c, promoted := replay.Candidate{Name: p.file}, replay.Candidate{Name: p.file + ", promoted"}
	tried := false
	for _, r := range p.cfg.Rules() {
		if r.Unlimited {
			continue
		}
		rule := replay.Rule{Limits: r.Limits, Options: r.Options}
		if r.Refuses {
			nothing := sash.PerSecond(refusesUnits)
			nothing.Name = "nothing"
			rule.Limits, rule.Refuses = []sash.Limit{nothing}, true
		}
		c.Rules = append(c.Rules, rule)
		if r.Candidate != nil {
			rule.Limits, rule.Options, rule.Refuses, tried = r.Candidate.Limits, r.Candidate.Options, false, true
		}
		promoted.Rules = append(promoted.Rules, rule)
	}
	if tried {
		return []replay.Candidate{c, promoted}
	}
	return []replay.Candidate{c}
}

// refusesUnits are the units of a rule that refuses everything. No limit has none, so its requests cost one more.
const refusesUnits = 1

// A policySelector charges requests as a configuration says.
type policySelector struct {
	*policyFlags
	keys     []string
	values   []*replay.Selector
	rules    map[*config.Rule]int
	requests []config.Entry
}

func (p *policyFlags) selector(e replay.Expressions, costs bool) (chooser, error) {
	var err error
	if p.cfg, _, err = serve.Load(config.Source{Path: p.file}); err != nil {
		return nil, err
	}
	if p.domain, err = serve.Domain(p.cfg, p.domain); err != nil {
		return nil, err
	}
	if len(p.entries) == 0 {
		p.entries = []string{"remote_address=remote_address"}
	}
	p.costs = costs
	s := &policySelector{policyFlags: p, rules: make(map[*config.Rule]int)}
	for _, r := range p.cfg.Rules() {
		if !r.Unlimited {
			s.rules[r] = len(s.rules)
		}
	}
	for _, entry := range p.entries {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--entry %q: write the key of a descriptor and an expression for its value, "+
				"such as remote_address=remote_address", entry)
		}
		one := e
		one.Key = value
		selector, err := replay.NewSelector(one)
		if err != nil {
			return nil, fmt.Errorf("--entry %s: %w", entry, err)
		}
		s.keys, s.values = append(s.keys, key), append(s.values, selector)
	}
	return s, nil
}

// Select implements chooser.
func (s *policySelector) Select(r *accesslog.Record) (selection replay.Selection, counts bool, err error) {
	s.requests = s.requests[:0]
	for i, value := range s.values {
		if selection, counts, err = value.Select(r); err != nil || !counts {
			return selection, counts, err
		}
		if selection.Key == "" { // as Envoy does, a request without the value makes no descriptor
			selection.Rule = -1
			return selection, true, nil
		}
		s.requests = append(s.requests, config.Entry{Key: s.keys[i], Value: selection.Key})
	}
	found, err := s.cfg.Find(s.domain, s.requests)
	if err != nil {
		return selection, false, err
	}
	rule := found.Rule
	selection.Rule = -1
	if rule != nil && !rule.Unlimited {
		selection.Rule = s.rules[rule]
		switch {
		case rule.Refuses:
			selection.Cost = refusesUnits + 1
		case !s.costs:
			selection.Cost = rule.Cost
		}
	}
	selection.Key = found.Key
	return selection, true, nil
}

// Missing implements chooser.
func (s *policySelector) Missing() (all []replay.Missing) {
	for _, value := range s.values {
		for _, m := range value.Missing() {
			if !slices.ContainsFunc(all, func(other replay.Missing) bool { return other.Field == m.Field }) {
				all = append(all, m)
			}
		}
	}
	return all
}
