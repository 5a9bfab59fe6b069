package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/sash"
)

// A Found is the result of matching a request.
type Found struct {
	// Rule is nil when nothing limits the request.
	Rule *Rule
	// Key is the subject that the request is charged to.
	Key string
	// Charged is the request's entries; values that a rule charges together (share_threshold) are the rule's, with its *.
	Charged []Entry
	// Metric names the rule in statistics, as Envoy's rate limit service does: the domain and the keys with the values
	// that the configuration specifies, and values of requests only where it asks for them.
	Metric string
}

// Find returns the rule for a request, and the subject and statistics that it counts under. Errors are
// ErrUnknownDomain and ErrNone.
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

// walk appends to path the descriptors that match entries, one each, up to the first entry that none matches.
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
	return nil, fmt.Errorf("%w %q: the configuration has %s", ErrUnknownDomain, clip(name), strings.Join(c.names, ", "))
}

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
			return fmt.Errorf("%w: no descriptor here has the key %q; the keys are: %s", ErrNoDescriptor, clip(e.Key),
				cmp.Or(strings.Join(keys[:min(len(keys), 10)], ", "), "none"))
		}
		here = below
	}
	return nil
}

// metric returns the name of the statistics of a request that matched along a path.
func metric(domain string, entries []Entry, path []*descriptor) string {
	b := append(make([]byte, 0, 128), domain...)
	detailed := path[len(path)-1].rule.Detailed
	empty := detailed && !slices.ContainsFunc(path, func(d *descriptor) bool { return d.share }) // also an empty value is shown
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

// Key returns the key of a domain and entries. Different domains and entries never share one.
func Key(domain string, entries []Entry) string {
	parts := append(make([]string, 0, 1+2*usualDepth), domain) // a constant length needs no allocation
	for _, e := range entries {
		parts = append(parts, e.Key, e.Value)
	}
	return sash.Key(parts...)
}

// A wildcard matches entries by a descriptor with * in its value or its key. Each * stands for any bytes, or none, also
// in the middle:
//
//	key: path,  value: /api/*/action    any path of that form
//	key: path*                          any entry whose key begins with path
//
// With * in the key the pattern is compared with the whole entry, key and value joined by _, as in Envoy's service: path*
// matches the entries path=/x and path_prefix=/x. Without, the key is compared by itself.
type wildcard struct {
	key     string // that entries must have; "" if the pattern covers the key too
	pattern string
	parts   []string // of the pattern between each *: at least two
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

// covers reports whether a text consists of the parts, with anything between them. Where a part in the middle occurs
// several times its first place is as good as any: it leaves the most for the parts that follow.
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

// shown returns the value that stands for all values of a key under the wildcard: in metrics, and with share_threshold
// in the subject.
func (w *wildcard) shown(key string) string {
	if w.key != "" {
		return w.pattern
	}
	return strings.TrimPrefix(w.pattern, key+"_")
}
