package config

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
)

// envoyUnits are the windows of rate_limit. Envoy counts a month as 30 days and a year as 365.
var envoyUnits = map[string]time.Duration{
	"SECOND": time.Second,
	"MINUTE": time.Minute,
	"HOUR":   time.Hour,
	"DAY":    24 * time.Hour,
	"WEEK":   7 * 24 * time.Hour,
	"MONTH":  30 * 24 * time.Hour,
	"YEAR":   365 * 24 * time.Hour,
}

// envoy reads rate_limit.
func (b *ruleBody) envoy(rule *Rule) error {
	var unit string
	var perUnit *yaml.Node
	err := b.mapping(b.RateLimit, "rate_limit", map[string]field{
		"unit":              b.str("unit", &unit),
		"requests_per_unit": func(n *yaml.Node) error { perUnit = resolve(n); return nil },
		"unlimited":         b.boolean("unlimited", &rule.Unlimited),
		"name":              b.str("name", &rule.Name),
		"replaces":          func(n *yaml.Node) error { return b.replaces(n, rule) },
	})
	if err != nil {
		return err
	}
	for _, name := range rule.Replaces {
		if name == rule.Name {
			return b.errorf(b.RateLimit, "replaces names the rule itself, %q", clip(name))
		}
	}
	units, err := b.perUnit(perUnit)
	if err != nil {
		return err
	}
	window, ok := envoyUnits[strings.ToUpper(unit)]
	switch {
	case rule.Unlimited && ok:
		return b.errorf(b.RateLimit, "unlimited excludes a unit")
	case rule.Unlimited:
		if unit != "" {
			b.warn(b.RateLimit, "unlimited: the unit %q has no effect", clip(unit))
		}
		return nil
	case !ok:
		return b.errorf(b.RateLimit, "unit %q must be second, minute, hour, day, week, month or year", clip(unit))
	case perUnit == nil || isNull(perUnit):
		b.warn(b.RateLimit, "requests_per_unit is missing: this refuses everything, as 0 does")
	}
	limit := sash.Every(units, window)
	limit.Name = rule.Name
	rule.Limits = []sash.Limit{limit}
	rule.Refuses = units == 0
	return nil
}

// perUnit reads requests_per_unit, which the protocol bounds. Nil and null are 0.
func (b *ruleBody) perUnit(n *yaml.Node) (int64, error) {
	if n == nil || isNull(n) {
		return 0, nil
	}
	units, whole := integer(n)
	_, err := strconv.ParseInt(n.Value, 0, 64)
	switch {
	case whole && units >= 0 && units <= math.MaxUint32:
		return units, nil
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && err == nil:
		return 0, b.errorf(n, "requests_per_unit %q is a string: remove the quotes", clip(n.Value))
	case whole && units > 0:
		return 0, b.errorf(n, "requests_per_unit is more than %d: give limits, such as limits: [\"%d/1d\"]", int64(math.MaxUint32), units)
	}
	return 0, b.errorf(n, "requests_per_unit must be a whole number of at least 0, without a point or an exponent")
}

// replaces reads the list of names in rate_limit.
func (b *ruleBody) replaces(n *yaml.Node, rule *Rule) error {
	return b.list(n, "replaces", func(n *yaml.Node) error {
		var name string
		if err := b.mapping(n, "an entry of replaces", map[string]field{"name": b.str("name", &name)}); err != nil {
			return err
		}
		if name == "" {
			return b.errorf(n, "an entry of replaces has no name")
		}
		rule.Replaces = append(rule.Replaces, name)
		return nil
	})
}
