package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoDescriptor means that no descriptor has the keys of some entries, in their order.
var ErrNoDescriptor = errors.New("nothing matches these entries")

// keyPath is the keys of a path as one string.
func keyPath(path []Entry) string {
	var b strings.Builder
	for _, e := range path {
		b.WriteString(e.Key + "\x00")
	}
	return b.String()
}

// Reach returns nil if the configuration has descriptors with the keys of these entries, so that a request that it
// counts, or one of its siblings with another value, can begin with them. Errors are ErrUnknownDomain and
// ErrNoDescriptor, with the keys that there are.
func (c *Config) Reach(domain string, entries []Entry) error {
	d, err := c.domain(domain)
	if err != nil {
		return err
	}
	for i := range entries {
		if !d.paths[keyPath(entries[:i+1])] {
			return d.unreached(entries[:i], entries[i].Key)
		}
	}
	here := d.descriptors
	for _, e := range entries {
		if own := here.exact[e]; own != nil && own.wildcard() && !own.share {
			return fmt.Errorf("%w: the descriptor %s=%s counts each value by itself: name a value, or set share_threshold there",
				ErrNoDescriptor, quote(e.Key), quote(clip(e.Value)))
		}
		next := here.find(e)
		if next == nil {
			break
		}
		here = next.children
	}
	return nil
}

// unreached says which keys there are below a path.
func (d *domain) unreached(above []Entry, key string) error {
	prefix := keyPath(above)
	var there []string
	for path := range d.paths {
		if rest, below := strings.CutPrefix(path, prefix); below && strings.Count(rest, "\x00") == 1 {
			there = append(there, quote(strings.TrimSuffix(rest, "\x00")))
		}
	}
	slices.Sort(there)
	place, have := "", "there are "+strings.Join(there[:min(len(there), 10)], ", ")
	if len(above) > 0 {
		place = " below " + spellKeys(above)
	}
	switch len(there) {
	case 0:
		have = "there is none"
	case 1:
		have = "there is " + there[0]
	}
	return fmt.Errorf("%w: no descriptor%s has the key %q: %s", ErrNoDescriptor, place, clip(key), have)
}

// spellKeys names the keys of entries.
func spellKeys(entries []Entry) string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = quote(e.Key)
	}
	return strings.Join(keys, " / ")
}
