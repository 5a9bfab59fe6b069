package config

import (
	"cmp"
	"math"
	"slices"
	"strconv"
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
	// SparesRefused charges no refused request, not even units that it names for one descriptor: count_refused is false.
	SparesRefused bool
	// RefundWithin is the longest time from a charge to its refund. Zero gives nothing back.
	RefundWithin time.Duration
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
	// MaxWait is how far ahead requests can be booked without the right to book further: max_wait.
	MaxWait time.Duration
	// Secrets are the keys in Path whose values are secret.
	Secrets []string
	// Candidate is the limits that are evaluated beside these, or nil.
	Candidate *Candidate
}

// Limited reports whether a store decides the requests of the rule.
func (r *Rule) Limited() bool { return !r.Unlimited && !r.Refuses }

// DefaultMaxWait bounds bookings of rules that do not say how far ahead they may be. A caller who never comes holds the
// subject for as long.
const DefaultMaxWait = 10 * time.Second

// A ruleBody is a descriptor as it is written. A nil node is a key that is not there.
type ruleBody struct {
	*reader
	Key         string     `yaml:"key"`
	Value       string     `yaml:"value"`
	Descriptors *yaml.Node `yaml:"descriptors"`
	Secret      *yaml.Node `yaml:"secret"`
	Metadata    *yaml.Node `yaml:"metadata"`
	Share       bool       `yaml:"share_threshold"`
	InMetric    bool       `yaml:"value_to_metric"`

	RateLimit *yaml.Node `yaml:"rate_limit"`
	Limits    *yaml.Node `yaml:"limits"`

	Algorithm     *yaml.Node `yaml:"algorithm"`
	Resolution    *yaml.Node `yaml:"resolution"`
	Cost          *yaml.Node `yaml:"cost"`
	CountRefused  *yaml.Node `yaml:"count_refused"`
	RefundWithin  *yaml.Node `yaml:"refund_within"`
	Block         *yaml.Node `yaml:"block"`
	OnUnavailable *yaml.Node `yaml:"on_unavailable"`
	Guard         bool       `yaml:"guard"`
	MaxWait       *yaml.Node `yaml:"max_wait"`
	Candidate     *yaml.Node `yaml:"candidate"`
	Shadow        bool       `yaml:"shadow_mode"`
	Quota         bool       `yaml:"quota_mode"`
	Detailed      bool       `yaml:"detailed_metric"`

	Scope    *yaml.Node `yaml:"scope"`
	Lease    *yaml.Node `yaml:"lease"`
	Regions  *yaml.Node `yaml:"regions"`
	OwnShare *yaml.Node `yaml:"own_share"`
}

// rule returns the rule, or nil for a descriptor that limits nothing.
func (b *ruleBody) rule(n *yaml.Node) (*Rule, error) {
	rule := &Rule{Cost: 1, MaxWait: DefaultMaxWait, Shadow: b.Shadow, Quota: b.Quota, Detailed: b.Detailed}
	if b.CountRefused != nil {
		if err := b.boolean("count_refused", &rule.Options.CountRefused)(b.CountRefused); err != nil {
			return nil, err
		}
		rule.SparesRefused = !rule.Options.CountRefused
	}
	rule.Options.CountRefused = rule.Options.CountRefused || b.defaults.CountRefused && b.Block == nil
	if b.Resolution == nil {
		rule.Options.Algorithm = b.defaults.Algorithm
	}
	if b.RateLimit != nil && isNull(resolve(b.RateLimit)) {
		b.warn(b.RateLimit, "rate_limit is empty: this descriptor limits nothing")
		b.RateLimit = nil
	}
	at := n // the node of errors about the limits
	switch {
	case b.RateLimit != nil && b.Limits != nil:
		return nil, b.errorf(b.Limits, "set rate_limit or limits, not both")
	case b.RateLimit != nil:
		at = b.RateLimit
		if err := b.envoy(rule); err != nil {
			return nil, err
		}
	case b.Limits != nil:
		at = b.Limits
		if err := b.list(b.Limits, "limits", func(n *yaml.Node) error { return b.limit(n, rule) }); err != nil {
			return nil, err
		}
		if len(rule.Limits) == 0 {
			return nil, b.errorf(b.Limits, "limits is empty: omit it for a descriptor that limits nothing")
		}
	}
	if rule.Unlimited || len(rule.Limits) == 0 {
		for _, stray := range []*yaml.Node{b.Algorithm, b.Resolution, b.Cost, b.OnUnavailable, b.Candidate, b.Block, b.MaxWait,
			b.RefundWithin, b.strayPlace()} {
			if stray != nil {
				return nil, b.errorf(stray, "algorithm, resolution, cost, block, max_wait, scope, lease, on_unavailable, refund_within and candidate "+
					"need rate_limit or limits beside them")
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
		if b.Candidate != nil {
			return nil, b.errorf(b.Candidate, "candidate beside a limit that refuses everything: give rate_limit some units, or replace it by the candidate's limits")
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
	if b.RefundWithin != nil {
		if err := b.lasting("refund_within", sash.MaxWindow, "such as 1m", &rule.RefundWithin)(b.RefundWithin); err != nil {
			return nil, err
		}
		if !Refundable(rule.Limits, rule.Options, rule.RefundWithin) && !b.defaults.CountRefused {
			return nil, b.errorf(b.RefundWithin, "a refund after refund_within, %s, would free other charges: it needs a longer window, "+
				"algorithm sliding-log, sorted-set-log or sliding-buckets, no calendar limit and no count_refused", short(rule.RefundWithin))
		}
	}
	if b.Candidate != nil {
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
			return b.errorf(cmp.Or(b.Cost, at), "a cost of %d units can never fit into %s", rule.Cost, cmp.Or(l.Name, l.String()))
		}
	}
	return nil
}

// limit reads one limit in Sash's form, such as "300/1m".
func (b *ruleBody) limit(n *yaml.Node, rule *Rule) error {
	text, err := b.text("a limit", n)
	if err != nil {
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
	rule.OnUnavailable.Guard = b.Guard
	for _, key := range []struct {
		at   *yaml.Node
		read field
	}{
		{b.Algorithm, func(n *yaml.Node) error { return b.algorithm(n, &rule.Options.Algorithm) }},
		{b.Resolution, b.lasting("resolution", sash.MaxWindow, "such as 1s or 100ms", &rule.Options.Resolution)},
		{b.Cost, b.units("cost", &rule.Cost)},
		{b.MaxWait, b.lasting("max_wait", 24*time.Hour, "such as 30s", &rule.MaxWait)},
		{b.Block, func(n *yaml.Node) error { return b.block(n, &rule.Options.Block) }},
		{b.OnUnavailable, func(n *yaml.Node) error { return b.unavailable(n, rule) }},
	} {
		if key.at == nil {
			continue
		}
		if err := key.read(key.at); err != nil {
			return err
		}
	}
	return nil
}

func (b *ruleBody) algorithm(n *yaml.Node, into *sash.Algorithm) error {
	text, err := b.text("algorithm", n)
	if err != nil {
		return err
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		return b.errorf(n, "%s", plain(err))
	}
	return nil
}

// plain returns the text of an error without the prefix of the library.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "sash: ") }

// resolutionSteps is the number of steps in the shortest window with an automatic resolution: a unit is held at most a
// thousandth of that window too long.
const resolutionSteps = 1000

// Fit validates limits with their options and fills in unset options. The default resolution of sliding-buckets is a
// thousandth of the shortest window. The error is sash.ErrInvalidLimit.
func Fit(opts *sash.Options, limits []sash.Limit) error {
	if opts.Algorithm == sash.SlidingBuckets && opts.Resolution == 0 {
		opts.Resolution = resolution(limits)
	}
	_, err := sash.NewPolicy(opts, limits...)
	return err
}

func resolution(limits []sash.Limit) time.Duration {
	step := shortest(limits) / resolutionSteps
	// Round up to whole milliseconds if there are any: the step is part of the keys' names.
	if step > time.Millisecond {
		return (step + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return max(step.Truncate(time.Microsecond), time.Microsecond)
}

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
	if slices.Contains(rule.Replaces, rule.Name) { // names in Replaces are not empty
		return b.errorf(b.RateLimit, "replaces names the rule itself, %q", clip(rule.Name))
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
