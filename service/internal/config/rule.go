package config

import (
	"cmp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash"
	"example.com/sash/failover"
)

// A Rule is the limits and options of one descriptor.
type Rule struct {
	// Domain and Path are the position of the rule. A bare key has an empty value in Path.
	Domain string
	Path   []Entry
	// Label names the rule within its domain in metrics: keys with the values that the configuration specifies.
	Label string
	// Limits has at least one element and is valid for sash.NewPolicy with Options. It is empty if the rule is
	// Unlimited. If the rule Refuses, it has one limit of no units, which is not valid in a policy.
	Limits []sash.Limit
	// Options are for sash.New.
	Options sash.Options
	// Cost is the default cost of a request: at least 1, and not above any limit.
	Cost int64
	// Unlimited admits every request without counting it.
	Unlimited bool
	// Refuses admits nothing: requests_per_unit is 0.
	Refuses bool
	// Shadow admits every request, whatever the limits decide: shadow_mode.
	Shadow bool
	// Quota refuses a request when no other quota of the request has room, either: quota_mode.
	Quota bool
	// Name identifies this rule in Replaces of other rules.
	Name string
	// OnUnavailable is the failure mode by cost, from the keys on_unavailable and guard.
	OnUnavailable failover.Modes
	// Place is where the charges are kept, and whether units are leased: scope and lease.
	Place Place
	// Line is where the descriptor stands, as "file:line".
	Line string
	// Replaces are the names of rules that do not count in a request that also matches this one.
	Replaces []string
	// Metadata is data for Envoy, which answers may have if the rule has room: metadata.
	Metadata map[string]any
	// Detailed puts the values of requests into the names of metrics: detailed_metric.
	Detailed bool
	// Secrets are the keys in Path whose values are secret.
	Secrets []string
	// Candidate is the limits that are evaluated beside these, or nil.
	Candidate *Candidate
}

// Limited reports whether a store decides the requests of the rule.
func (r *Rule) Limited() bool { return !r.Unlimited && !r.Refuses }

// A ruleBody collects the keys of a descriptor that define its rule.
type ruleBody struct {
	*reader
	rateLimit, limits, algorithm, resolution, cost *yaml.Node // as given
	onUnavailable, candidate, block                *yaml.Node
	scope, lease, regions, ownShare                *yaml.Node

	shadow, quota, detailed, guard, countRefused bool
}

func (b *ruleBody) fields() map[string]field {
	keep := func(into **yaml.Node) field {
		return func(n *yaml.Node) error { *into = n; return nil }
	}
	return map[string]field{
		"rate_limit":  func(n *yaml.Node) error { return b.keepRateLimit(n) },
		"limits":      keep(&b.limits),
		"algorithm":   keep(&b.algorithm),
		"resolution":  keep(&b.resolution),
		"cost":        keep(&b.cost),
		"candidate":   keep(&b.candidate),
		"block":       keep(&b.block),
		"scope":       keep(&b.scope),
		"lease":       keep(&b.lease),
		"regions":     keep(&b.regions),
		"own_share":   keep(&b.ownShare),
		"shadow_mode": b.boolean("shadow_mode", &b.shadow),
		"quota_mode":  b.boolean("quota_mode", &b.quota),

		"on_unavailable": keep(&b.onUnavailable),
		"guard":          b.boolean("guard", &b.guard),

		"detailed_metric": b.boolean("detailed_metric", &b.detailed),
		"count_refused":   b.boolean("count_refused", &b.countRefused),
	}
}

func (b *ruleBody) keepRateLimit(n *yaml.Node) error {
	if b.rateLimit = n; isNull(resolve(n)) {
		b.rateLimit = nil
		b.warn(n, "rate_limit is empty: this descriptor limits nothing")
	}
	return nil
}

// rule returns the rule, or nil for a descriptor that limits nothing.
func (b *ruleBody) rule(n *yaml.Node) (*Rule, error) {
	rule := &Rule{Cost: 1, Shadow: b.shadow, Quota: b.quota, Detailed: b.detailed}
	rule.Options.CountRefused = b.countRefused || b.defaults.CountRefused && b.block == nil
	if b.resolution == nil {
		rule.Options.Algorithm = b.defaults.Algorithm
	}
	at := n // the node of errors about the limits
	switch {
	case b.rateLimit != nil && b.limits != nil:
		return nil, b.errorf(b.limits, "set rate_limit or limits, not both")
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
			return nil, b.errorf(b.limits, "limits is empty: omit it for a descriptor that limits nothing")
		}
	}
	if rule.Unlimited || len(rule.Limits) == 0 {
		for _, stray := range []*yaml.Node{b.algorithm, b.resolution, b.cost, b.onUnavailable, b.candidate, b.block, b.strayPlace()} {
			if stray != nil {
				return nil, b.errorf(stray, "algorithm, resolution, cost, block, scope, lease, on_unavailable and candidate need rate_limit or limits beside them")
			}
		}
		if rule.Unlimited {
			return rule, nil
		}
		return nil, nil
	}
	if err := b.options(rule); err != nil {
		return nil, err
	}
	if rule.Refuses {
		if b.candidate != nil {
			return nil, b.errorf(b.candidate, "candidate beside a limit that refuses everything: give rate_limit some units, or replace it by the candidate's limits")
		}
		if stray := b.strayPlace(); stray != nil {
			return nil, b.errorf(stray, "scope and lease beside a limit that refuses everything: give rate_limit some units, or remove them")
		}
		return rule, nil
	}
	declared := rule.Options
	if err := b.fit(at, rule); err != nil {
		return nil, err
	}
	if b.candidate != nil {
		if err := b.readCandidate(rule, declared); err != nil {
			return nil, err
		}
	}
	return rule, b.place(rule)
}

// fit validates the limits of a rule, at a node, with its options and its cost.
func (b *ruleBody) fit(at *yaml.Node, rule *Rule) error {
	if err := Fit(&rule.Options, rule.Limits); err != nil {
		return b.errorf(at, "%s", plain(err))
	}
	for _, l := range rule.Limits {
		if rule.Cost > l.Units {
			return b.errorf(cmp.Or(b.cost, at), "a cost of %d units can never fit into %s", rule.Cost, cmp.Or(l.Name, l.String()))
		}
	}
	return nil
}

// limit reads one limit in Sash's form, such as "300/1m".
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
		if err := b.lasting("resolution", sash.MaxWindow, "such as 1s or 100ms", &rule.Options.Resolution)(b.resolution); err != nil {
			return err
		}
	}
	if b.cost != nil {
		if err := b.units("cost", &rule.Cost)(b.cost); err != nil {
			return err
		}
	}
	if err := b.readBlock(rule); err != nil {
		return err
	}
	return b.unavailable(rule)
}

// plain returns the text of an error without the prefix of the library.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "sash: ") }

// resolutionSteps is the number of steps in the shortest window with an automatic resolution: a unit is held at most a
// thousandth of that window too long.
const resolutionSteps = 1000

// Fit validates limits with their options and fills in unset options. A limit with more units than an exact log can
// hold uses sliding-buckets. The default resolution of sliding-buckets is a thousandth of the shortest window, or
// longer if the longest window needs it. The error is sash.ErrInvalidLimit.
func Fit(opts *sash.Options, limits []sash.Limit) error {
	if opts.Algorithm == sash.SlidingLog && opts.Resolution == 0 {
		for _, l := range limits {
			if l.Units > sash.MaxEntries {
				opts.Algorithm = sash.SlidingBuckets
			}
		}
	}
	if opts.Algorithm == sash.SlidingBuckets && opts.Resolution == 0 {
		opts.Resolution = resolution(limits)
	}
	_, err := sash.NewPolicy(opts, limits...)
	return err
}

func resolution(limits []sash.Limit) time.Duration {
	var shortest, longest time.Duration
	for _, l := range limits {
		length := l.Window
		switch l.Period {
		case sash.CalendarHour:
			length = time.Hour
		case sash.CalendarDay:
			length = 26 * time.Hour
		case sash.CalendarMonth:
			length = 33 * 24 * time.Hour
		}
		if shortest == 0 || length < shortest {
			shortest = length
		}
		longest = max(longest, length)
	}
	step := max(shortest/resolutionSteps, 2*longest/(sash.MaxEntries-2))
	// Round up to whole milliseconds if there are any: the step is part of the keys' names.
	if step > time.Millisecond {
		return (step + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return max(step.Truncate(time.Microsecond), time.Microsecond)
}
