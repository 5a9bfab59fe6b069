package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoDescriptor means that no descriptor has the keys of some entries, in their order.
var ErrNoDescriptor = errors.New("nothing matches these entries")

// Reach returns nil if the configuration has descriptors with the keys of these entries, so that a request that it
// counts, or one of its siblings with another value, can begin with them. Errors are ErrUnknownDomain and
// ErrNoDescriptor, with the keys that there are.
func (c *Config) Reach(domain string, entries []Entry) error {
	d, err := c.domain(domain)
	if err != nil {
		return err
	}
	below := []*level{d.descriptors}
	for i, e := range entries {
		next := withKey(below, e.Key)
		if len(next) == 0 {
			return unreached(below, entries[:i], e.Key)
		}
		below = next
	}
	here := d.descriptors
	for _, e := range entries {
		if own := here.exact[e]; own != nil && own.wildcard != nil && !own.share {
			return fmt.Errorf("%w: the descriptor %s=%s counts each value by itself: name a value, or set share_threshold there",
				ErrNoDescriptor, quote(e.Key), quote(clip(e.Value)))
		}
		next := d.find(here, e)
		if next == nil {
			break
		}
		here = next.children
	}
	return nil
}

// withKey returns what is below the descriptors of some levels that an entry with the key can match.
func withKey(levels []*level, key string) []*level {
	var below []*level
	for _, l := range levels {
		for e, d := range l.exact {
			if e.Key == key || d.wildcard != nil && d.wildcard.key == "" && d.wildcard.begins(key+"_") {
				below = append(below, d.children)
			}
		}
	}
	return below
}

// unreached says which keys there are in the levels below a path.
func unreached(levels []*level, above []Entry, key string) error {
	var there []string
	for _, l := range levels {
		for e := range l.exact {
			there = append(there, quote(e.Key))
		}
	}
	slices.Sort(there)
	there = slices.Compact(there)
	place := ""
	for _, e := range above {
		place += " / " + quote(e.Key)
	}
	if place != "" {
		place = " below" + strings.TrimPrefix(place, " /")
	}
	return fmt.Errorf("%w: no descriptor%s has the key %q; the keys are: %s", ErrNoDescriptor, place, clip(key),
		cmp.Or(strings.Join(there[:min(len(there), 10)], ", "), "none"))
}
