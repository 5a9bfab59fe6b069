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
	Limits  []sash.Limit
	Options sash.Options
	// Cost is the default cost of a request: at least 1, and not above any limit.
	Cost int64
	// Unlimited admits every request without counting it.
	Unlimited bool
	// Refuses admits nothing: requests_per_unit is 0.
	Refuses bool
	// Envoys says that the rule is written as in Envoy's service, with rate_limit.
	Envoys bool
	// SparesRefused charges nothing for refused requests, not even for a descriptor with its own units: count_refused is false.
	SparesRefused bool
	// RefundWithin is the longest time from a charge to its refund. Zero gives nothing back.
	RefundWithin time.Duration
	// Shadow admits every request, whatever the limits decide: shadow_mode.
	Shadow bool
	// Quota refuses a request only if no other quota of the request has room: quota_mode.
	Quota bool
	// Name identifies this rule in Replaces of other rules.
	Name string
	// OnUnavailable is the failure mode by cost, from the keys on_unavailable and guard.
	OnUnavailable failover.Modes
	// Place is where the charges are kept, and whether units are leased: scope and lease.
	Place Place
	// Line is the position of the descriptor, as "file:line".
	Line string
	// Replaces are the names of rules that do not count in a request that also matches this one.
	Replaces []string
	// Metadata is data that answers may send to Envoy if the rule has room: metadata.
	Metadata map[string]any
	// Detailed puts the values of requests into the names of metrics: detailed_metric.
	Detailed bool
	// MaxWait is how far ahead requests can be booked without the right to book further: max_wait.
	MaxWait time.Duration
	// Secrets are the keys in Path whose values are secret.
	Secrets []string
	// Candidate is the limits that are evaluated beside these, or nil.
	Candidate *Candidate
	// Tokens says that the units are tokens of a language model, and how requests and responses name them. Nil means other units.
	Tokens *Tokens
}

// Tokens is the key tokens of a rule: {format: openai, default_max: 4096, ask_for_usage: true}.
type Tokens struct {
	Format      string `yaml:"format"`        // the API that requests are for: openai, anthropic or gemini
	DefaultMax  int64  `yaml:"default_max"`   // is written into requests that set no maximum output
	AskForUsage bool   `yaml:"ask_for_usage"` // makes streams of OpenAI's chat API end with their usage, which clients then get too
	CountErrors bool   `yaml:"count_errors"`  // keeps the charge of a request that the upstream answers with 4xx or 5xx
	Elsewhere   int64  `yaml:"elsewhere"`     // is charged for each image, file, earlier response and tool that a body only names; zero rejects them
}

func (b *ruleBody) tokens(n *yaml.Node, rule *Rule) {
	rule.Tokens = &Tokens{DefaultMax: 4096}
	b.Mapping(n, "tokens", b.Fields(rule.Tokens))
	switch {
	case !slices.Contains([]string{"openai", "anthropic", "gemini"}, rule.Tokens.Format):
		b.Fail(n, "tokens: the format %q must be openai, anthropic or gemini", Clip(rule.Tokens.Format))
	case rule.Options.CountRefused:
		b.Fail(n, "tokens beside count_refused: units of refused requests cannot be settled")
	}
}

// Limited reports whether a store decides the requests of the rule.
func (r *Rule) Limited() bool { return !r.Unlimited && !r.Refuses }

// DefaultMaxWait bounds bookings under rules without max_wait. A caller that never comes holds its subject for that long.
const DefaultMaxWait = 10 * time.Second

// A ruleBody is a descriptor as it is written. A nil node is an absent key.
type ruleBody struct {
	*Reader
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
	Tokens        *yaml.Node `yaml:"tokens"`
	Shadow        bool       `yaml:"shadow_mode"`
	Quota         bool       `yaml:"quota_mode"`
	Detailed      bool       `yaml:"detailed_metric"`

	Scope    *yaml.Node `yaml:"scope"`
	Lease    *yaml.Node `yaml:"lease"`
	Regions  *yaml.Node `yaml:"regions"`
	OwnShare *yaml.Node `yaml:"own_share"`
}

// rule returns the rule. It is nil for a descriptor that limits nothing, and after an error.
func (b *ruleBody) rule(n *yaml.Node) *Rule {
	rule := &Rule{Cost: 1, MaxWait: DefaultMaxWait, Shadow: b.Shadow, Quota: b.Quota, Detailed: b.Detailed, Envoys: b.RateLimit != nil}
	if b.CountRefused != nil {
		rule.Options.CountRefused = b.Boolean("count_refused", b.CountRefused)
		rule.SparesRefused = !rule.Options.CountRefused
	}
	rule.Options.CountRefused = rule.Options.CountRefused || b.defaults.CountRefused && b.Block == nil
	if b.Resolution == nil {
		rule.Options.Algorithm = b.defaults.Algorithm
	}
	if b.RateLimit != nil && IsNull(Resolve(b.RateLimit)) {
		b.Warn(b.RateLimit, "rate_limit is empty: this descriptor limits nothing")
		b.RateLimit = nil
	}
	at := cmp.Or(b.RateLimit, b.Limits, n) // where errors about the limits point
	switch {
	case b.RateLimit != nil && b.Limits != nil:
		b.Fail(b.Limits, "set rate_limit or limits, not both")
	case b.RateLimit != nil:
		b.envoy(rule)
	case b.Limits != nil:
		b.List(b.Limits, "limits", func(n *yaml.Node) { b.limit(n, rule) })
		if len(rule.Limits) == 0 {
			b.Fail(b.Limits, "limits is empty: omit it for a descriptor that limits nothing")
		}
	}
	if rule.Unlimited || len(rule.Limits) == 0 {
		stray := cmp.Or(b.Algorithm, b.Resolution, b.Cost, b.OnUnavailable, b.Candidate, b.Block, b.MaxWait, b.RefundWithin,
			b.Tokens, b.Scope, b.Lease, b.Regions, b.OwnShare)
		if stray != nil {
			b.Fail(stray, "algorithm, resolution, cost, block, max_wait, scope, lease, on_unavailable, refund_within, tokens and candidate "+
				"need rate_limit or limits beside them")
		}
		if rule.Unlimited {
			return rule
		}
		return nil
	}
	b.options(rule)
	if rule.Refuses {
		if b.Candidate != nil {
			b.Fail(b.Candidate, "candidate beside a limit that refuses everything: give rate_limit some units, or replace it by the candidate's limits")
		}
		if stray := cmp.Or(b.Scope, b.Lease, b.Regions, b.OwnShare); stray != nil {
			b.Fail(stray, "scope and lease beside a limit that refuses everything: give rate_limit some units, or remove them")
		}
		return rule
	}
	declared := rule.Options
	b.fit(at, rule)
	if b.RefundWithin != nil {
		b.lasting("refund_within", sash.MaxWindow, "such as 1m", &rule.RefundWithin)(b.RefundWithin)
		if !Refundable(rule.Limits, rule.Options, rule.RefundWithin) && !b.defaults.CountRefused {
			b.Fail(b.RefundWithin, "a refund after refund_within, %s, would free other charges: it needs a longer window, "+
				"algorithm sliding-log, sorted-set-log or sliding-buckets, no calendar limit and no count_refused", short(rule.RefundWithin))
		}
	}
	if b.Candidate != nil {
		b.readCandidate(rule, declared)
	}
	if b.Err != nil {
		return nil
	}
	b.place(rule)
	return rule
}

func (b *ruleBody) fit(at *yaml.Node, rule *Rule) {
	if err := Fit(&rule.Options, rule.Limits); err != nil {
		b.Fail(at, "%s", plain(err))
	}
	for _, l := range rule.Limits {
		if rule.Cost > l.Units {
			b.Fail(cmp.Or(b.Cost, at), "a cost of %d units can never fit into %s", rule.Cost, cmp.Or(l.Name, l.String()))
		}
	}
}

func (b *ruleBody) limit(n *yaml.Node, rule *Rule) {
	text := b.Text("a limit", n)
	limit, err := sash.ParseLimit(text)
	if err != nil {
		b.Fail(n, "%s", plain(err))
	}
	limit.Name = text // as it was written: 9500/24h rather than 9500/1d
	rule.Limits = append(rule.Limits, limit)
}

func (b *ruleBody) options(rule *Rule) {
	rule.OnUnavailable.Guard = b.Guard
	for _, key := range []struct {
		at   *yaml.Node
		read Field
	}{
		{b.Algorithm, func(n *yaml.Node) {
			if err := rule.Options.Algorithm.UnmarshalText([]byte(b.Text("algorithm", n))); err != nil {
				b.Fail(n, "%s", plain(err))
			}
		}},
		{b.Resolution, b.lasting("resolution", sash.MaxWindow, "such as 1s or 100ms", &rule.Options.Resolution)},
		{b.Cost, func(n *yaml.Node) { rule.Cost = b.Units("cost", n) }},
		{b.MaxWait, b.lasting("max_wait", 24*time.Hour, "such as 30s", &rule.MaxWait)},
		{b.Block, func(n *yaml.Node) { b.block(n, &rule.Options.Block) }},
		{b.OnUnavailable, func(n *yaml.Node) { b.unavailable(n, rule) }},
		{b.Tokens, func(n *yaml.Node) { b.tokens(n, rule) }},
	} {
		if key.at != nil {
			key.read(key.at)
		}
	}
}

func plain(err error) string { return strings.TrimPrefix(err.Error(), "sash: ") }

// resolutionSteps is how many automatic steps the shortest window has: units are held too long by at most a thousandth of it.
const resolutionSteps = 1000

// Fit validates limits with their options and fills in unset options. The default resolution of sliding-buckets is a
// thousandth of the shortest window. The error is sash.ErrInvalidLimit.
func Fit(opts *sash.Options, limits []sash.Limit) error {
	if opts.Algorithm == sash.SlidingBuckets && opts.Resolution == 0 {
		// The step is whole milliseconds if possible, because it is part of the keys' names.
		step := shortest(limits) / resolutionSteps
		opts.Resolution = max(step.Truncate(time.Microsecond), time.Microsecond)
		if step > time.Millisecond {
			opts.Resolution = (step + time.Millisecond - 1).Truncate(time.Millisecond)
		}
	}
	_, err := sash.NewPolicy(opts, limits...)
	return err
}

// envoyUnits are the windows of rate_limit. Envoy counts a month as 30 days and a year as 365.
var envoyUnits = map[string]time.Duration{
	"SECOND": time.Second, "MINUTE": time.Minute, "HOUR": time.Hour, "DAY": 24 * time.Hour,
	"WEEK": 7 * 24 * time.Hour, "MONTH": 30 * 24 * time.Hour, "YEAR": 365 * 24 * time.Hour,
}

func (b *ruleBody) envoy(rule *Rule) {
	var unit string
	var perUnit *yaml.Node
	b.Mapping(b.RateLimit, "rate_limit", map[string]Field{
		"unit":              b.Str("unit", &unit),
		"requests_per_unit": func(n *yaml.Node) { perUnit = Resolve(n) },
		"unlimited":         func(n *yaml.Node) { rule.Unlimited = b.Boolean("unlimited", n) },
		"name":              b.Str("name", &rule.Name),
		"replaces": func(n *yaml.Node) {
			b.List(n, "replaces", func(n *yaml.Node) {
				var name string
				b.Mapping(n, "an entry of replaces", map[string]Field{"name": b.Str("name", &name)})
				if name == "" {
					b.Fail(n, "an entry of replaces has no name")
				}
				rule.Replaces = append(rule.Replaces, name)
			})
		},
	})
	if slices.Contains(rule.Replaces, rule.Name) { // names in Replaces are not empty
		b.Fail(b.RateLimit, "replaces names the rule itself, %q", Clip(rule.Name))
	}
	units := b.perUnit(perUnit)
	window, ok := envoyUnits[strings.ToUpper(unit)]
	switch {
	case rule.Unlimited && ok:
		b.Fail(b.RateLimit, "unlimited excludes a unit")
	case rule.Unlimited:
		if unit != "" && unit != "UNKNOWN" { // a management server sends UNKNOWN for none
			b.Warn(b.RateLimit, "unlimited: the unit %q has no effect", Clip(unit))
		}
		return
	case !ok:
		b.Fail(b.RateLimit, "unit %q must be second, minute, hour, day, week, month or year", Clip(unit))
	case perUnit == nil || IsNull(perUnit):
		b.Warn(b.RateLimit, "requests_per_unit is missing: this refuses everything, as 0 does")
	}
	limit := sash.Every(units, window)
	limit.Name = rule.Name
	rule.Limits = []sash.Limit{limit}
	rule.Refuses = units == 0
}

// perUnit reads requests_per_unit, which the protocol bounds. Nil and null are 0.
func (b *ruleBody) perUnit(n *yaml.Node) int64 {
	if n == nil || IsNull(n) {
		return 0
	}
	units, whole := Integer(n)
	_, err := strconv.ParseInt(n.Value, 0, 64)
	switch {
	case whole && units >= 0 && units <= math.MaxUint32:
		return units
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && err == nil:
		b.Fail(n, "requests_per_unit %q is a string: remove the quotes", Clip(n.Value))
	case whole && units > 0:
		b.Fail(n, "requests_per_unit is more than %d: give limits, such as limits: [\"%d/1d\"]", int64(math.MaxUint32), units)
	}
	b.Fail(n, "requests_per_unit must be a whole number of at least 0, without a point or an exponent")
	return 0
}
