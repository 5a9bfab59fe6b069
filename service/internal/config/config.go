// Package config reads the policy language: which limits hold for which descriptor.
//
// It is the configuration of Envoy's rate limit service, as far as it is supported, and keys of ours. A
// file holds one or more YAML documents, each a domain with nested descriptors:
//
//	domain: demo
//	descriptors:
//	  - key: remote_address
//	    limits: ["10/1m", "60/1h"]
//
// # How a request finds its descriptor
//
// A request has a domain and entries, each a key and a value. The entries are taken in order, one level
// of descriptors each: a descriptor with exactly that key and value comes before one with the key alone.
// The descriptor of the last entry decides. When an entry finds none, or the last one's descriptor has
// no limits, nothing limits the request: it is allowed and not counted, as Envoy does. There is no way
// back: once an exact value matched, the descriptor with the bare key is not tried any more.
//
// A descriptor with the key alone counts every value by itself: what is charged is the list of entries.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/sash"
)

// An Entry is one key and value of a request's descriptor. The value may be empty.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ErrUnknownDomain means that a request names a domain that no document configures.
var ErrUnknownDomain = errors.New("unknown domain")

// A Config is what a file says. It does not change once parsed, and is safe for concurrent use.
type Config struct {
	domains map[string]*domain
	names   []string // in the order of the file
	rules   []*Rule
}

type domain struct {
	name        string
	descriptors level
}

// A level is the descriptors below one descriptor. A bare key has the value "".
type level map[Entry]*descriptor

type descriptor struct {
	rule     *Rule // nil: nothing is limited here
	children level
}

// A Rule is what one descriptor holds its subjects to.
type Rule struct {
	// Domain and Path say where the rule is. A bare key has an empty value there.
	Domain string
	Path   []Entry
	// Limits are one or more, and pass sash.NewPolicy with Options.
	Limits []sash.Limit
	// Options are for sash.New.
	Options sash.Options
	// Cost is the units of a request that does not say: at least 1, not above any limit.
	Cost int64
	// Shadow lets every request through, whatever the limits say.
	Shadow bool
}

// Domains returns the names of the domains, in the order of the file.
func (c *Config) Domains() []string { return slices.Clone(c.names) }

// Rules returns all rules in the order of the file. The caller must not change them.
func (c *Config) Rules() []*Rule { return c.rules }

// Match returns the rule for a request, or nil when nothing limits it. The error is ErrUnknownDomain.
func (c *Config) Match(domain string, entries []Entry) (*Rule, error) {
	d := c.domains[domain]
	if d == nil {
		return nil, fmt.Errorf("%w %q: the configuration has %s", ErrUnknownDomain, clip(domain), strings.Join(c.names, ", "))
	}
	here := d.descriptors
	var rule *Rule
	for _, e := range entries {
		found := here[e]
		if found == nil {
			found = here[Entry{Key: e.Key}]
		}
		if found == nil {
			return nil, nil
		}
		here, rule = found.children, found.rule
	}
	return rule, nil
}

// Key returns the subject that a request is charged to: different domains and entries never share one.
func Key(domain string, entries []Entry) string {
	parts := make([]string, 1, 1+2*len(entries))
	parts[0] = domain
	for _, e := range entries {
		parts = append(parts, e.Key, e.Value)
	}
	return sash.Key(parts...)
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
