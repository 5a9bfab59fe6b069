package config

import (
	"strconv"
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

// envoy reads rate_limit.
func (b *ruleBody) envoy(rule *Rule) error {
	var unit, perUnit string
	err := b.mapping(b.rateLimit, "rate_limit", map[string]field{
		"unit":              b.text("unit", &unit),
		"requests_per_unit": b.text("requests_per_unit", &perUnit),
		"unlimited":         b.boolean("unlimited", &rule.Unlimited),
		"name":              b.text("name", &rule.Name),
		"replaces":          func(n *yaml.Node) error { return b.replaces(n, rule) },
	})
	if err != nil {
		return err
	}
	for _, name := range rule.Replaces {
		if name == rule.Name {
			return b.errorf(b.rateLimit, "replaces names the rule itself, %q", clip(name))
		}
	}
	if rule.Unlimited {
		if unit != "" {
			return b.errorf(b.rateLimit, "unlimited excludes a unit")
		}
		return nil
	}
	window, ok := envoyUnits[strings.ToLower(unit)]
	if !ok {
		return b.errorf(b.rateLimit, "unit %q must be second, minute, hour, day, week, month or year", clip(unit))
	}
	if perUnit == "" {
		return b.errorf(b.rateLimit, "requests_per_unit is missing; 0 would refuse everything")
	}
	units, err := strconv.ParseInt(strings.ReplaceAll(perUnit, "_", ""), 10, 64)
	if err != nil || units < 0 {
		return b.errorf(b.rateLimit, "requests_per_unit must be a whole number of at least 0")
	}
	limit := sash.Every(units, window)
	limit.Name = rule.Name
	rule.Limits = []sash.Limit{limit}
	rule.Refuses = units == 0
	return nil
}

// replaces reads the list of names in rate_limit.
func (b *ruleBody) replaces(n *yaml.Node, rule *Rule) error {
	return b.list(n, "replaces", func(n *yaml.Node) error {
		var name string
		if err := b.mapping(n, "an entry of replaces", map[string]field{"name": b.text("name", &name)}); err != nil {
			return err
		}
		if name == "" {
			return b.errorf(n, "an entry of replaces has no name")
		}
		rule.Replaces = append(rule.Replaces, name)
		return nil
	})
}
