package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// credentials are the keys whose values are secret unless the configuration says otherwise, in any spelling: forward-auth
// and Envoy name entries after the headers they come from, whose letters have no case.
var credentials = []string{"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token"}

// A secrecy is what a domain's descriptors say about the values of one key.
type secrecy struct {
	secret *bool      // as given
	value  *yaml.Node // a descriptor that has a value of the key
	in     reader     // the file of value
}

// noteSecrecy records what a descriptor says about its key. Secret is nil if it says nothing.
func (p *parser) noteSecrecy(n *yaml.Node, domain string, e Entry, secret *bool) error {
	of := p.secrecies[domain]
	if of == nil {
		of = make(map[string]*secrecy)
		p.secrecies[domain] = of
	}
	s := of[e.Key]
	if s == nil {
		s = &secrecy{}
		of[e.Key] = s
	}
	if secret != nil {
		if s.secret != nil && *s.secret != *secret {
			return p.errorf(n, "the key %q is secret: %v in another descriptor: a key is secret in the whole domain", clip(e.Key), *s.secret)
		}
		s.secret = secret
	}
	if s.value == nil && e.Value != "" {
		s.value, s.in = n, p.reader
	}
	return nil
}

// secrets decides which keys of each domain are secret.
func (p *parser) secrets() error {
	for _, name := range p.config.names {
		d, of := p.config.domains[name], p.secrecies[name]
		d.secret = make(map[string]bool)
		for key, s := range of {
			secret := isCredential(key)
			if s.secret != nil {
				secret = *s.secret
			}
			if d.secret[key] = secret; secret && s.value != nil {
				return s.in.errorf(s.value, "the values of %q are secret, and this descriptor matches one of them, which stands here and in metrics: "+
					"remove the value, or set secret: false", clip(key))
			}
		}
	}
	for _, rule := range p.config.rules {
		for _, e := range rule.Path {
			if p.config.domains[rule.Domain].hides(e.Key) && !slices.Contains(rule.Secrets, e.Key) {
				rule.Secrets = append(rule.Secrets, e.Key)
			}
		}
	}
	return nil
}

// Hide returns entries with their secret values replaced by what hide makes of them: the same slice if none is secret. An
// empty value is not secret.
func (c *Config) Hide(domain string, entries []Entry, hide func(string) string) []Entry {
	d := c.domains[domain]
	out := entries
	for i, e := range entries {
		if e.Value == "" || !d.hides(e.Key) {
			continue
		}
		if &out[0] == &entries[0] {
			out = slices.Clone(entries)
		}
		out[i].Value = hide(e.Value)
	}
	return out
}

// hides reports whether the values of a key are secret. A nil domain is one that the configuration does not have.
func (d *domain) hides(key string) bool {
	if d != nil {
		if secret, has := d.secret[key]; has {
			return secret
		}
	}
	return isCredential(key)
}

// isCredential reports whether the values of a key are secret without a word of the configuration.
func isCredential(key string) bool {
	return slices.ContainsFunc(credentials, func(name string) bool {
		return len(name) == len(key) && strings.EqualFold(name, strings.ReplaceAll(key, "_", "-"))
	})
}
