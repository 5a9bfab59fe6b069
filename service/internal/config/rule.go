package config

import (
	"cmp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
)

// envoyUnits are the windows of rate_limit. Envoy counts a month as 30 days and a year as 365.
var envoyUnits = map[string]time.Duration{
	"second": time.Second,
	"minute": time.Minute,
	"hour":   time.Hour,
	"day":    24 * time.Hour,
	"week":   7 * 24 * time.Hour,
	"month":  30 * 24 * time.Hour,
	"year":   365 * 24 * time.Hour,
}

// A ruleBody collects the keys of a descriptor that make its rule.
type ruleBody struct {
	*reader
	rateLimit, limits, algorithm, resolution, cost *yaml.Node // as given

	shadow bool
}

func (b *ruleBody) fields() map[string]field {
	keep := func(into **yaml.Node) field {
		return func(n *yaml.Node) error { *into = n; return nil }
	}
	return map[string]field{
		"rate_limit":  keep(&b.rateLimit),
		"limits":      keep(&b.limits),
		"algorithm":   keep(&b.algorithm),
		"resolution":  keep(&b.resolution),
		"cost":        keep(&b.cost),
		"shadow_mode": b.boolean("shadow_mode", &b.shadow),
	}
}

// rule returns the rule, or nil for a descriptor that limits nothing.
func (b *ruleBody) rule(n *yaml.Node) (*Rule, error) {
	rule := &Rule{Cost: 1, Shadow: b.shadow}
	at := n // the line that an error about the limits is on
	switch {
	case b.rateLimit != nil && b.limits != nil:
		return nil, b.errorf(b.limits, "give rate_limit or limits, not both")
	case b.rateLimit != nil:
		at = b.rateLimit
		if err := b.envoy(rule); err != nil {
			return nil, err
		}
	case b.limits != nil:
		at = b.limits
		if err := b.list(b.limits, "limits", func(n *yaml.Node) error { return b.limit(n, rule) }); err != nil {
			return nil, err
		}
		if len(rule.Limits) == 0 {
			return nil, b.errorf(b.limits, "limits is empty: leave it out for a descriptor that limits nothing")
		}
	}
	if len(rule.Limits) == 0 {
		for _, stray := range []*yaml.Node{b.algorithm, b.resolution, b.cost} {
			if stray != nil {
				return nil, b.errorf(stray, "algorithm, resolution and cost belong beside rate_limit or limits")
			}
		}
		return nil, nil
	}
	if err := b.options(rule); err != nil {
		return nil, err
	}
	if _, err := sash.NewPolicy(&rule.Options, rule.Limits...); err != nil {
		return nil, b.errorf(at, "%s", plain(err))
	}
	for _, l := range rule.Limits {
		if rule.Cost > l.Units {
			return nil, b.errorf(b.cost, "a cost of %d units can never fit into %s", rule.Cost, cmp.Or(l.Name, l.String()))
		}
	}
	return rule, nil
}

// limit reads one limit of ours, such as "300/1m".
func (b *ruleBody) limit(n *yaml.Node, rule *Rule) error {
	var text string
	if err := b.text("a limit", &text)(n); err != nil {
		return err
	}
	limit, err := sash.ParseLimit(text)
	if err != nil {
		return b.errorf(n, "%s", plain(err))
	}
	limit.Name = text // as it was written: 9500/24h rather than 9500/1d
	rule.Limits = append(rule.Limits, limit)
	return nil
}

// envoy reads rate_limit.
func (b *ruleBody) envoy(rule *Rule) error {
	var unit, name string
	var units int64
	var unlimited bool
	err := b.mapping(b.rateLimit, "rate_limit", map[string]field{
		"unit":              b.text("unit", &unit),
		"requests_per_unit": b.units("requests_per_unit", &units),
		"unlimited":         b.boolean("unlimited", &unlimited),
		"name":              b.text("name", &name),
	}, laterRateLimit...)
	if err != nil {
		return err
	}
	if unlimited {
		if unit != "" || units != 0 {
			return b.errorf(b.rateLimit, "unlimited stands alone: without unit and requests_per_unit")
		}
		return nil
	}
	window, ok := envoyUnits[strings.ToLower(unit)]
	if !ok {
		return b.errorf(b.rateLimit, "unit %q: it is second, minute, hour, day, week, month or year", clip(unit))
	}
	if units == 0 {
		return b.errorf(b.rateLimit, "requests_per_unit is missing")
	}
	limit := sash.Every(units, window)
	limit.Name = name
	rule.Limits = []sash.Limit{limit}
	return nil
}

func (b *ruleBody) options(rule *Rule) error {
	var text string
	if b.algorithm != nil {
		if err := b.text("algorithm", &text)(b.algorithm); err != nil {
			return err
		}
		if err := rule.Options.Algorithm.UnmarshalText([]byte(text)); err != nil {
			return b.errorf(b.algorithm, "%s", plain(err))
		}
	}
	if b.resolution != nil {
		err := b.text("resolution", &text)(b.resolution)
		if err != nil {
			return err
		}
		if rule.Options.Resolution, err = time.ParseDuration(text); err != nil || rule.Options.Resolution <= 0 {
			return b.errorf(b.resolution, "resolution %q: it is a duration such as 1s or 100ms", clip(text))
		}
	}
	if b.cost != nil {
		return b.units("cost", &rule.Cost)(b.cost)
	}
	return nil
}

// plain is an error's text without the name of the library.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "sash: ") }
