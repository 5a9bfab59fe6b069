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
// the headers of credentials are secret unless a descriptor says secret: false. A secret key is matched by itself only,
// because a value in the configuration would be seen there.
package config

import (
	"errors"
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

// ErrNone means that there is no configuration yet to decide by.
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

func (l *level) add(d *descriptor) {
	l.exact[d.entry] = d
	if d.wildcard != nil {
		l.wildcards = append(l.wildcards, d)
	}
}

// find returns the descriptor at a level for an entry, or nil.
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
	inMetric bool      // the value of the request is part of the metric's name
	children *level
}

// Defaults are the options of rules that do not name their own, and of request limits. The zero value is sliding-log,
// which charges what it admits.
type Defaults struct {
	Algorithm    sash.Algorithm
	CountRefused bool
	// HeadersOnly makes only the names of headers secret by themselves: Envoy's service has all values in clear text.
	HeadersOnly bool
}

// Defaults returns those that the configuration was read with.
func (c *Config) Defaults() Defaults { return c.defaults }

// Empty returns a configuration without domains, which limits nothing.
func Empty() *Config { return &Config{domains: make(map[string]*domain)} }

// None stands for a configuration that has not been loaded yet. Every request is answered ErrNone, so that nothing is
// admitted uncounted.
func None() *Config { return &Config{none: true} }

// Loaded reports whether c is a configuration that was loaded, and not None.
func (c *Config) Loaded() bool { return !c.none }

// Domains returns the names of the domains, in the order of the file.
func (c *Config) Domains() []string { return slices.Clone(c.names) }

// Warnings returns what is accepted in the configuration and probably not meant, one line each with the file and the
// line. They are at most 200.
func (c *Config) Warnings() []string { return slices.Clone(c.warnings) }

// Rules returns all rules in the order of the file. The caller must not change them.
func (c *Config) Rules() []*Rule { return c.rules }

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
