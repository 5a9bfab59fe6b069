package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// credentials are the keys whose values are secret unless the configuration says otherwise, in any spelling. Forward-auth and
// Envoy name entries after headers, whose letters have no case. The first keys are headers that are credentials in every request.
var credentials = []string{
	"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token",
	// Programs choose the other names. Their values are in clear text in a domain with a descriptor for one of them.
	"access-token", "api-token", "apikey", "auth-token", "client-secret", "id-token", "jwt", "passwd", "password", "refresh-token",
	"secret", "session", "session-id", "session-token", "sessionid", "token",
}

// headers is how many of the credentials are names of headers.
const headers = 7

// words are credentials within a key: the values of a descriptor's key with one of these words are secret too.
var words = []string{
	"token", "secret", "password", "passwd", "session", "sessionid", "api-key", "apikey", "authorization", "cookie", "credential",
	"credentials", "jwt",
}

// A secrecy is what a domain's descriptors say about the values of one key.
type secrecy struct {
	secret *bool // as given; once the configuration is read, never nil
	value  error // the error if they are secret: from the first descriptor with a value of the key
	at     *yaml.Node
	in     Reader // of at, the first descriptor of the key
}

// A keyWildcard is a descriptor with * in its key.
type keyWildcard struct {
	*wildcard
	at *yaml.Node
	in Reader
}

// recordSecrecy records what a descriptor says about its key. Said is the node of the key secret, or nil.
func (p *parser) recordSecrecy(n *yaml.Node, in *domain, d *descriptor, said *yaml.Node) {
	key := d.entry.Key
	var secret *bool
	if said != nil {
		is := p.Boolean("secret", said)
		if secret = &is; IsNull(Resolve(said)) {
			p.Fail(said, "secret must be true or false")
		}
	}
	if d.wildcard != nil && d.wildcard.key == "" {
		if secret != nil {
			p.Fail(n, "secret is for one key: %q has a *", Clip(key))
		}
		p.keyWildcards[in] = append(p.keyWildcards[in], keyWildcard{d.wildcard, n, p.Reader})
		return
	}
	s := in.keys[key]
	if s == nil {
		s = &secrecy{at: n, in: p.Reader}
		in.keys[key] = s
	}
	if secret != nil {
		if s.secret != nil && *s.secret != *secret {
			p.Fail(n, "the key %q is secret: %v in another descriptor: a key is secret in the whole domain", Clip(key), *s.secret)
		}
		s.secret = secret
	}
	if s.value == nil && d.entry.Value != "" {
		s.value = p.Errorf(n, "the values of %q are secret, and this descriptor matches one of them, which stands here and in metrics: "+
			"remove the value, or set secret: false", Clip(key))
	}
}

// secrets checks what the descriptors of each domain say about secrets, and sets the Secrets of the rules.
func (p *parser) secrets() error {
	for _, name := range p.config.names {
		d := p.config.domains[name]
		for _, key := range slices.Sorted(maps.Keys(d.keys)) {
			s := d.keys[key]
			switch {
			case d.hides(key) && s.value != nil:
				return s.value
			case s.secret != nil || d.headersOnly || slices.Contains(credentials[:headers], spelling(key)) || !named(key):
			case s.value != nil:
				s.in.Warn(s.at, "the values of %q are in clear text in Redis and in logs, since a descriptor matches one of them: set secret: false "+
					"if they are no secrets, or else secret: true, and remove the value", Clip(key))
			default:
				s.in.Warn(s.at, "the values of %q are secret because of its name: set secret: true, or secret: false to have them in clear text", Clip(key))
			}
		}
		for _, w := range p.keyWildcards[d] {
			_, partly := d.secretsUnder(w.wildcard)
			switch {
			case partly == "":
			case d.keys[partly] != nil:
				return w.in.Errorf(w.at, "this wildcard covers some values of %q, which are secret: end its key in * and remove the value, "+
					"or set secret: false there", Clip(partly))
			default:
				w.in.Warn(w.at, "values of %q are secret, and this wildcard is not compared with them: end its key in * and remove the value, "+
					"or add a descriptor {key: %s, secret: false}", partly, partly)
			}
		}
	}
	for _, rule := range p.config.rules {
		d := p.config.domains[rule.Domain]
		for _, e := range rule.Path {
			keys := []string{e.Key}
			if w := newWildcard(e); w != nil && w.key == "" {
				keys, _ = d.secretsUnder(w)
			}
			for _, key := range keys {
				if d.hides(key) && !slices.Contains(rule.Secrets, key) {
					rule.Secrets = append(rule.Secrets, key)
				}
			}
		}
	}
	for _, d := range p.config.domains { // so that requests need no further lookup
		for key, s := range d.keys {
			hides := d.hides(key)
			s.secret = &hides
		}
	}
	return nil
}

// secretsUnder returns the secret keys that a wildcard covers, sorted, and one key that it covers only in part, if there is one.
func (d *domain) secretsUnder(w *wildcard) (keys []string, partly string) {
	add := func(key string, w *wildcard, start string) {
		if !w.begins(start) {
			return
		}
		keys = append(keys, key)
		if partly == "" && !w.coversAll(start) {
			partly = key
		}
	}
	for key := range d.keys {
		if d.hides(key) {
			add(key, w, key+"_")
		}
	}
	spelled := newWildcard(Entry{Key: spelling(w.pattern)})
	for _, key := range d.guessed("") {
		if d.keys[key] == nil {
			add(key, spelled, spelling(key+"_"))
		}
	}
	slices.Sort(keys)
	return keys, partly
}

// Hide returns entries with secret values replaced by names from hide. Empty values stay. Without secrets, it returns the same slice.
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

// hides reports whether the values of a key are secret. A nil domain means that the configuration does not have the domain.
func (d *domain) hides(key string) bool {
	if d != nil {
		switch s := d.keys[key]; {
		case s == nil:
		case s.secret != nil:
			return *s.secret
		case s.value == nil && !d.headersOnly && named(key):
			return true
		}
	}
	return slices.ContainsFunc(d.guessed(key), func(name string) bool {
		// Compare cheaply first, because spelling copies.
		return len(key) <= len(name) && len(name) <= len(key)+2 && name[0] == key[0]|' ' && name == spelling(key)
	})
}

func named(key string) bool {
	key = "-" + spelling(key) + "-"
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(key, "-"+word+"-") })
}

func (d *domain) guessed(key string) []string {
	if d != nil && (d.headersOnly || d.keys[key] != nil && d.keys[key].value != nil) {
		return credentials[:headers]
	}
	return credentials
}

// guesses reports whether a wildcard with * in its key would match part of a secret value, for which requests have only a name.
func (d *domain) guesses(w *wildcard, e Entry) bool {
	return w.key == "" && e.Value != "" && d.hides(e.Key) && !w.coversAll(e.Key+"_")
}

var joint = regexp.MustCompile(`[_.]|([a-z0-9])([A-Z])`)

// spelling returns a key as the list of credentials spells it: access-token for access_token and accessToken.
func spelling(key string) string { return strings.ToLower(joint.ReplaceAllString(key, "$1-$2")) }
