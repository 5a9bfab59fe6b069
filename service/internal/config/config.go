// Package config reads the configuration: the limits that apply to each descriptor.
//
// The language is that of Envoy's rate limit service, as far as it is supported, with keys of Sash's own. A file
// holds one or more YAML documents, each a domain with nested descriptors:
//
//	domain: demo
//	descriptors:
//	  - key: remote_address
//	    limits: ["10/1m", "60/1h"]
//
// # How a request matches a descriptor
//
// A request has a domain and entries, each a key and a value. The entries are matched in order, one level of
// descriptors each: first a descriptor with exactly that key and value, then the first one in the file that is a
// wildcard and matches (see wildcard), then one with the key alone. The descriptor of the last entry applies. If an
// entry matches none, or the last descriptor has no limits, nothing limits the request: it is allowed and not counted,
// as in Envoy's service. There is no backtracking: once an exact value has matched, the descriptor with the bare key is
// not considered. An entry without a value has no exact match: wildcards come first.
//
// A descriptor with the key alone, or a wildcard, counts each value separately: the subject is the list of entries. With
// share_threshold, all values of a key under a wildcard are charged together.
//
// # Secrets
//
// With secret: true the values of a descriptor's key are secret in the whole domain: see [Config.Hide]. Keys named like
// the headers of credentials are secret unless a descriptor says secret: false. Descriptors match a secret key without
// a value, because anyone who reads the configuration would see the value.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.com/sash"
)

// An Entry is one key and its value in a request's descriptor. The value may be empty.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ErrUnknownDomain means that a request names a domain that no document configures.
var ErrUnknownDomain = errors.New("unknown domain")

// ErrNone means that no configuration has been loaded yet.
var ErrNone = errors.New("there is no configuration yet")

// A Config is a parsed configuration. It is immutable and safe for concurrent use.
type Config struct {
	domains map[string]*domain
	names   []string // in the order of the file
	rules   []*Rule
	none    bool // no configuration was loaded yet

	defaults Defaults
	warnings []string
}

type domain struct {
	name        string
	descriptors *level
	keys        map[string]*secrecy // of each descriptor without * in its key
	headersOnly bool                // see Defaults
}

// A level is the descriptors below one descriptor. A bare key has the value "".
type level struct {
	exact     map[Entry]*descriptor
	wildcards []*descriptor // in the order of the file
}

func newLevel() *level { return &level{exact: make(map[Entry]*descriptor)} }

func (d *domain) find(at *level, e Entry) *descriptor {
	if e.Value != "" {
		if exact := at.exact[e]; exact != nil {
			return exact
		}
	}
	for _, w := range at.wildcards {
		if w.wildcard.matches(e) && !d.guesses(w.wildcard, e) {
			return w
		}
	}
	return at.exact[Entry{Key: e.Key}]
}

type descriptor struct {
	entry    Entry
	wildcard *wildcard // nil without *
	rule     *Rule     // nil if nothing is limited here
	share    bool      // values under the wildcard are charged together
	inMetric bool      // the metric's name contains the value of the request
	children *level
}

// Defaults are the options of request limits, and of rules that do not set their own. The zero value is sliding-log,
// which charges only admitted requests.
type Defaults struct {
	Algorithm    sash.Algorithm
	CountRefused bool
	// HeadersOnly makes only the names of headers secret by default, since Envoy's service has all values in clear text.
	HeadersOnly bool
}

// Defaults returns the defaults with which the configuration was read.
func (c *Config) Defaults() Defaults { return c.defaults }

// Empty returns a configuration without domains, which limits nothing.
func Empty() *Config { return &Config{domains: make(map[string]*domain)} }

// None stands for a configuration that is not loaded yet. Every request gets ErrNone, and none is admitted uncounted.
func None() *Config { return &Config{none: true} }

// Loaded reports whether c is a configuration that was loaded, and not None.
func (c *Config) Loaded() bool { return !c.none }

// Domains returns the names of the domains, in the order of the file.
func (c *Config) Domains() []string { return slices.Clone(c.names) }

// Warnings returns probable mistakes in the configuration: at most 200 lines, each with the file and the line number.
func (c *Config) Warnings() []string { return slices.Clone(c.warnings) }

// Rules returns all rules in the order of the file. The caller must not change them.
func (c *Config) Rules() []*Rule { return c.rules }

// A Found is the result of matching a request.
type Found struct {
	// Rule is nil if nothing limits the request.
	Rule *Rule
	// Key is the subject that the request is charged to.
	Key string
	// Charged is the request's entries. A value that a rule charges together with others (share_threshold) is the rule's, with its *.
	Charged []Entry
	// Metric names the rule in statistics, as Envoy's rate limit service does: the domain and the keys, with the values
	// that the configuration specifies. It contains values of requests only if the configuration asks for them.
	Metric string
}

// Find returns the rule for a request, with its subject and statistics. Errors are ErrUnknownDomain and ErrNone.
func (c *Config) Find(domain string, entries []Entry) (Found, error) {
	d, err := c.domain(domain)
	if err != nil {
		return Found{}, err
	}
	path := d.walk(entries, make([]*descriptor, 0, usualDepth))
	found := Found{Charged: entries}
	for i, at := range path {
		if e := entries[i]; at.share {
			charged := Entry{e.Key, at.wildcard.shown(e.Key)}
			found.Charged = slices.Concat(found.Charged[:i], []Entry{charged}, entries[i+1:])
		}
	}
	if len(path) < len(entries) || len(path) == 0 || path[len(path)-1].rule == nil {
		return found, nil
	}
	last := path[len(path)-1]
	found.Rule, found.Key, found.Metric = last.rule, Key(domain, found.Charged), metric(domain, entries, path)
	return found, nil
}

// walk appends to path one descriptor for each entry that matches, up to the first entry that no descriptor matches.
func (d *domain) walk(entries []Entry, path []*descriptor) []*descriptor {
	here := d.descriptors
	for _, e := range entries {
		at := d.find(here, e)
		if at == nil {
			break
		}
		path, here = append(path, at), at.children
	}
	return path
}

// domain returns a domain. Errors are ErrUnknownDomain and ErrNone.
func (c *Config) domain(name string) (*domain, error) {
	if c.none {
		return nil, ErrNone
	}
	if d := c.domains[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%w %q: the configuration has %s", ErrUnknownDomain, Clip(name), strings.Join(c.names, ", "))
}

// ErrNoDescriptor means that no descriptors have the keys of these entries, in their order.
var ErrNoDescriptor = errors.New("nothing matches these entries")

// Reach returns nil if the configuration has descriptors with the keys of these entries. A request that it counts can
// then begin with them, or with other values in their place. Errors are ErrUnknownDomain, and ErrNoDescriptor with
// the keys that exist.
func (c *Config) Reach(domain string, entries []Entry) error {
	d, err := c.domain(domain)
	if err != nil {
		return err
	}
	here := []*level{d.descriptors}
	for _, e := range entries {
		var below []*level
		var keys []string
		for _, l := range here {
			for at, d := range l.exact {
				keys = append(keys, quote(at.Key))
				if at.Key == e.Key || d.wildcard != nil && d.wildcard.key == "" && d.wildcard.begins(e.Key+"_") {
					below = append(below, d.children)
				}
			}
		}
		if len(below) == 0 {
			slices.Sort(keys)
			keys = slices.Compact(keys)
			return fmt.Errorf("%w: no descriptor here has the key %q; the keys are: %s", ErrNoDescriptor, Clip(e.Key),
				cmp.Or(strings.Join(keys[:min(len(keys), 10)], ", "), "none"))
		}
		here = below
	}
	return nil
}

// metric returns the name in statistics of a request that matched along a path.
func metric(domain string, entries []Entry, path []*descriptor) string {
	b := append(make([]byte, 0, 128), domain...)
	detailed := path[len(path)-1].rule.Detailed
	empty := detailed && !slices.ContainsFunc(path, func(d *descriptor) bool { return d.share }) // shows empty values too
	for i, d := range path {
		value := d.entry.Value
		switch {
		case !d.share && (d.inMetric || detailed):
			value = entries[i].Value
		case d.wildcard != nil:
			value = d.wildcard.shown(entries[i].Key)
		}
		b = append(append(b, '.'), entries[i].Key...)
		if value != "" || empty {
			b = append(append(b, '_'), value...)
		}
	}
	return string(b)
}

// Key returns the key of a domain and entries. Different domains or entries never share a key.
func Key(domain string, entries []Entry) string {
	parts := append(make([]string, 0, 1+2*usualDepth), domain) // a constant length needs no allocation
	for _, e := range entries {
		parts = append(parts, e.Key, e.Value)
	}
	return sash.Key(parts...)
}

// A wildcard matches entries by a descriptor with * in its value or its key. Each * stands for any bytes, or none, and
// may be in the middle:
//
//	key: path,  value: /api/*/action    any path of that form
//	key: path*                          any entry whose key begins with path
//
// With * in the key, the pattern covers the whole entry, key and value joined by _, as in Envoy's service: path* matches
// the entries path=/x and path_prefix=/x. Without * in the key, the key must be equal.
type wildcard struct {
	key     string // the key that entries must have; "" if the pattern covers the key too
	pattern string
	parts   []string // the parts of the pattern around each *: at least two
}

// newWildcard returns the wildcard of a descriptor's entry, or nil if it has no *.
func newWildcard(e Entry) *wildcard {
	w := &wildcard{key: e.Key, pattern: e.Value}
	if strings.Contains(e.Key, "*") {
		w.key, w.pattern = "", e.Key
		if e.Value != "" {
			w.pattern += "_" + e.Value
		}
	}
	if w.parts = strings.Split(w.pattern, "*"); len(w.parts) < 2 {
		return nil
	}
	return w
}

func (w *wildcard) matches(e Entry) bool {
	if w.key == "" {
		return w.covers(e.Key + "_" + e.Value)
	}
	return w.key == e.Key && w.covers(e.Value)
}

// covers reports whether a text consists of the parts, with anything between them. Each part takes its first place, to leave the most text.
func (w *wildcard) covers(text string) bool {
	last := len(w.parts) - 1
	text, found := strings.CutPrefix(text, w.parts[0])
	if !found {
		return false
	}
	for _, part := range w.parts[1:last] {
		if _, text, found = strings.Cut(text, part); !found {
			return false
		}
	}
	return strings.HasSuffix(text, w.parts[last])
}

// coversAll reports whether the pattern covers every text that begins with a given one.
func (w *wildcard) coversAll(start string) bool {
	return w.parts[len(w.parts)-1] == "" && w.covers(start)
}

// begins reports whether the pattern covers some text that begins with a given one.
func (w *wildcard) begins(start string) bool {
	return strings.HasPrefix(start, w.parts[0]) || strings.HasPrefix(w.parts[0], start)
}

// shown returns the text for all values of a key under the wildcard, in metrics and, with share_threshold, in the subject.
func (w *wildcard) shown(key string) string {
	if w.key != "" {
		return w.pattern
	}
	return strings.TrimPrefix(w.pattern, key+"_")
}

// Metric returns the name of the rule in statistics: the domain, and the keys with the values of the configuration.
func (r *Rule) Metric() string { return r.Domain + "." + r.Label }

// Describe returns a description of the rule in one line: "5/1m by sliding-log, shadow_mode".
func (r *Rule) Describe() string {
	var words []string
	switch {
	case r.Unlimited:
		words = append(words, "unlimited")
	case r.Refuses:
		words = append(words, "refuses everything")
	default:
		words = append(words, describeLimits(r.Limits, r.Options))
	}
	optional := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	block, modes := r.Options.Block, describeModes(&r.OnUnavailable)
	optional(r.Cost > 1, "cost %d", r.Cost)
	optional(r.Options.CountRefused, "count_refused")
	optional(r.SparesRefused, "count_refused: false")
	optional(r.RefundWithin > 0, "refund_within %s", short(r.RefundWithin))
	optional(block.Refusals == 1, "block %s after 1 refusal in %s", short(block.For), short(block.Window))
	optional(block.Refusals > 1, "block %s after %d refusals in %s", short(block.For), block.Refusals, short(block.Window))
	optional(r.MaxWait != DefaultMaxWait && r.Limited(), "max_wait %s", short(r.MaxWait))
	optional(r.Shadow, "shadow_mode")
	optional(r.Quota, "quota_mode")
	optional(r.Detailed, "detailed_metric")
	if r.Tokens != nil {
		words = append(words, "tokens of "+r.Tokens.Format)
	}
	optional(len(r.Secrets) > 0, "secret %s", strings.Join(r.Secrets, " and "))
	optional(r.Place.Global, "scope global")
	optional(r.Place.Lease > 0, "lease %s", short(r.Place.Lease))
	optional(r.Place.Own.Regions > 0, "own share %d%% of %d regions", r.Place.Own.Percent, r.Place.Own.Regions)
	optional(modes != "", "on_unavailable %s", modes)
	optional(r.OnUnavailable.Guard, "guard")
	optional(len(r.Replaces) > 0, "replaces %s", strings.Join(r.Replaces, " and "))
	if c := r.Candidate; c != nil {
		words = append(words, "candidate "+describeLimits(c.Limits, c.Options))
		optional(c.Percent == 0, "not enforced")
		optional(c.Percent > 0, "enforced for %g%%", c.Percent)
	}
	return strings.Join(words, ", ")
}

// describeLimits returns limits and their algorithm as text: "5/1m and 60/1h by sliding-log".
func describeLimits(limits []sash.Limit, opts sash.Options) string {
	var texts []string
	for _, l := range limits {
		text := l.Name
		l.Name = ""
		if text == "" {
			text = l.String()
		} else if text != l.String() && !strings.Contains(text, "/") {
			text = l.String() + " (" + text + ")"
		}
		texts = append(texts, text)
	}
	by := opts.Algorithm.String()
	if opts.Resolution > 0 {
		by += " of " + opts.Resolution.String()
	}
	return strings.Join(texts, " and ") + " by " + by
}

// Dump writes the rules in the order of the configuration. For each limit it writes the line of Envoy's rate limit
// service, after a comment with what that line cannot say.
func (c *Config) Dump(w io.Writer) error {
	var b strings.Builder
	for _, r := range c.rules {
		fmt.Fprintf(&b, "# %s: %s\n", r.Metric(), r.Describe())
		limits := r.Limits
		if r.Unlimited {
			limits = []sash.Limit{{}}
		}
		for _, l := range limits {
			fmt.Fprintf(&b, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", r.Metric(), unitOf(l), l.Units, r.Shadow, r.Quota)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unitOf returns the unit of Envoy's service that equals a limit's window, or UNKNOWN.
func unitOf(l sash.Limit) string {
	for name, window := range envoyUnits {
		if l.Period == 0 && l.Window == window {
			return name
		}
	}
	return "UNKNOWN"
}

// Explain returns how a request matches: one line for each entry, up to the first without a match. The error is ErrUnknownDomain.
func (c *Config) Explain(domain string, entries []Entry) (lines []string, found Found, err error) {
	if found, err = c.Find(domain, entries); err != nil {
		return nil, found, err
	}
	path := c.domains[domain].walk(entries, nil)
	for i, d := range path {
		how := "key alone"
		switch {
		case d.entry == entries[i] && d.entry.Value != "":
			how = "exact value"
		case d.wildcard != nil:
			how = "wildcard"
		}
		lines = append(lines, fmt.Sprintf("%s=%s  matches %s by its %s", entries[i].Key, entries[i].Value, spell(d.entry), how))
	}
	if len(path) < len(entries) {
		e := entries[len(path)]
		lines = append(lines, fmt.Sprintf("%s=%s  matches nothing here", e.Key, e.Value))
	}
	return lines, found, nil
}

// Removed returns the rules of one configuration that another does not have, in their order.
func Removed(before, after *Config) (removed []string) {
	stays := make(map[string]bool)
	for _, r := range after.rules {
		stays[r.String()] = true
	}
	for _, r := range before.rules {
		if name := r.String(); !stays[name] {
			removed = append(removed, name)
		}
	}
	return removed
}
