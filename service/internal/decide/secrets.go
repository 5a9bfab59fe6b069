package decide

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// ErrNoSecretKeys means that a value is secret, and that there is no key to name it under.
var ErrNoSecretKeys = errors.New("a secret value needs a key that is shared and kept: set SASH_SECRET_KEYS to at least 32 random bytes, " +
	"the same on all instances, such as from: openssl rand -base64 32")

// The name of a secret is what stands for its value in everything that is kept or shown: its HMAC under the first of the
// decider's keys. The engine replaces the value when a request comes in, and knows nothing but the name from there on.
const (
	secretName   = "hmac-"
	noSecretName = secretName + "none" // where there is no key; nothing is counted under it
)

func nameOf(key []byte, value string) string { return secretName + sash.Secret(key, value) }

// isName reports whether a text has the form of a name.
func isName(text string) bool {
	mac, found := strings.CutPrefix(text, secretName)
	sum, err := base64.RawURLEncoding.DecodeString(mac)
	return found && err == nil && len(sum) == 32
}

// ownKey is a key for a decider whose names nobody else needs.
func ownKey() [][]byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return [][]byte{key}
}

// NameSecrets sets the keys under which secret values are named, in place of one of this process's own. The first names
// subjects; exceptions that were written under any of them hold. Without a key, a configuration with secret values is an
// error, now and in Use, which is ErrNoSecretKeys. NameSecrets must not be called when requests are being decided.
func (d *Decider) NameSecrets(keys ...[]byte) error {
	d.keys = keys
	return d.checkSecrets(d.Config())
}

// checkSecrets returns ErrNoSecretKeys if a configuration has secret values and there is no key for them.
func (d *Decider) checkSecrets(cfg *config.Config) error {
	if len(d.keys) > 0 {
		return nil
	}
	return NeedsKeys(cfg)
}

// NeedsKeys returns ErrNoSecretKeys if a configuration has secret values.
func NeedsKeys(cfg *config.Config) error {
	for _, rule := range cfg.Rules() {
		if len(rule.Secrets) > 0 {
			return fmt.Errorf("%s: the values of %q are secret (remove that with secret: false): %w", rule, rule.Secrets[0], ErrNoSecretKeys)
		}
	}
	return nil
}

// Named returns entries with secret values replaced by their names, for operators: a value that is a name stays.
// The error is ErrNoSecretKeys.
func (d *Decider) Named(domain string, entries []config.Entry) ([]config.Entry, error) {
	named := d.Config().Hide(domain, entries, d.name(0, true))
	if len(d.keys) == 0 && len(entries) > 0 && &named[0] != &entries[0] {
		return named, ErrNoSecretKeys
	}
	return named, nil
}

// name returns what replaces a secret value, under key i. Given names stay if they are taken.
func (d *Decider) name(i int, takeNames bool) func(string) string {
	return func(value string) string {
		switch {
		case takeNames && isName(value):
			return value
		case len(d.keys) == 0:
			return noSecretName
		}
		return nameOf(d.keys[i], value)
	}
}

// hide replaces the secret values of a part by their names. Older are its entries as exceptions under the other keys
// name them.
func (d *Decider) hide(r *rules, domain string, part *Part) {
	if part.hidden {
		return
	}
	part.hidden = true
	given := part.Entries
	part.Entries = r.config.Hide(domain, given, d.name(0, part.Named))
	if len(given) == 0 || &part.Entries[0] == &given[0] {
		return
	}
	part.unnamed = len(d.keys) == 0
	for i := 1; i < len(d.keys) && r.excepts(); i++ {
		part.older = append(part.older, r.config.Hide(domain, given, d.name(i, part.Named)))
	}
}
