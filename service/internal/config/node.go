package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A reader walks YAML nodes and prefixes every error with the file's name and the line.
type reader struct {
	file     string
	defaults Defaults
	notes    *notes // of all files
}

func (r *reader) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.file, n.Line, fmt.Sprintf(format, args...))
}

// warn notes what is accepted, and probably not meant. The first hundred are kept.
func (r *reader) warn(n *yaml.Node, format string, args ...any) {
	if len(r.notes.warnings) < maxWarnings {
		r.notes.warnings = append(r.notes.warnings, r.errorf(n, format, args...).Error())
	}
}

// A field reads the value of one key of a mapping.
type field func(n *yaml.Node) error

// mapping reads a mapping with the field of each key. Keys must be unique. What names the mapping in errors.
func (r *reader) mapping(n *yaml.Node, what string, fields map[string]field) error {
	pairs, err := r.pairs(n, what, 0)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		read := fields[p.key.Value]
		if read == nil {
			known := slices.Sorted(maps.Keys(fields))
			return r.errorf(p.key, "unknown key %q: %s can have %s", clip(p.key.Value), what, strings.Join(known, ", "))
		}
		if err := read(p.value); err != nil {
			return err
		}
	}
	return nil
}

// fields returns the readers of the fields of a struct, by their tags: a node stays as it is written.
func (r *reader) fields(into any) map[string]field {
	fields := make(map[string]field)
	all := reflect.ValueOf(into).Elem()
	for i := range all.NumField() {
		name := all.Type().Field(i).Tag.Get("yaml")
		if name == "" {
			continue
		}
		switch at := all.Field(i).Addr().Interface().(type) {
		case **yaml.Node:
			fields[name] = func(n *yaml.Node) error { *at = n; return nil }
		case *string:
			fields[name] = r.str(name, at)
		case *bool:
			fields[name] = r.boolean(name, at)
		}
	}
	return fields
}

// list reads a list. Null is an empty one.
func (r *reader) list(n *yaml.Node, what string, read field) error {
	if n = resolve(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return r.errorf(n, "%s must be a list", what)
	}
	for _, item := range n.Content {
		if err := read(item); err != nil {
			return err
		}
	}
	return nil
}

// text reads a scalar as it is written: 404 and true are strings here.
func (r *reader) text(what string, n *yaml.Node) (string, error) {
	switch n = resolve(n); {
	case n.Kind != yaml.ScalarNode:
		return "", r.errorf(n, "%s must be a string", what)
	case isNull(n):
		return "", nil
	}
	return n.Value, nil
}

func (r *reader) boolean(what string, into *bool) field {
	return func(n *yaml.Node) error {
		n = resolve(n)
		var v *bool
		quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
		if n.Kind != yaml.ScalarNode || quoted || n.Decode(&v) != nil {
			return r.errorf(n, "%s must be true or false", what)
		}
		*into = v != nil && *v
		return nil
	}
}

// units reads a whole number of at least 1.
func (r *reader) units(what string, into *int64) field {
	return func(n *yaml.Node) error {
		n = resolve(n)
		v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil || v < 1 {
			return r.errorf(n, "%s must be a whole number of at least 1", what)
		}
		*into = v
		return nil
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// integer returns the value of a whole number; false if a node is none. 010 is 8.
func integer(n *yaml.Node) (v int64, ok bool) {
	ok = n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Decode(&v) == nil
	return v, ok
}

// str reads a scalar of a key that Envoy's service has. Like there, a number with a fraction or an exponent is none: it
// could be written in other ways, such as 1e3 and 1000, and only one of them would match.
func (r *reader) str(what string, into *string) field {
	return func(n *yaml.Node) error {
		n = resolve(n)
		tag := n.ShortTag()
		_, within := integer(n)
		switch {
		case n.Kind != yaml.ScalarNode:
			return r.errorf(n, "%s must be a string", what)
		case tag == "!!null":
			*into = ""
		case tag == "!!float" || tag == "!!int" && !within:
			return r.errorf(n, "%s is the number %s: put it into quotes", what, clip(n.Value))
		case tag == "!!binary":
			return r.errorf(n, "%s is a %s: write it as a string, without the tag", what, tag)
		default:
			*into = n.Value
		}
		return nil
	}
}

// Bounds of merge keys, which can expand a small file into a large one.
const (
	maxMergeDepth = 100
	maxMerged     = 1_000_000 // pairs, of all files
)

// A pair is a key of a mapping and its value.
type pair struct{ key, value *yaml.Node }

// pairs returns the pairs of a mapping, with those that its merge keys (<<) bring. As in Envoy's service the last one of a
// key counts, in the order of the file, so that a merge key after a key replaces it; and two mappings, such as those of
// rate_limit, become one with the keys of both. Without a merge key, a key that is there twice is an error.
func (r *reader) pairs(n *yaml.Node, what string, depth int) ([]pair, error) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil, r.errorf(n, "%s must be a mapping of keys to values", what)
	}
	out := make([]pair, 0, len(n.Content)/2)
	at := make(map[string]int, len(n.Content)/2) // where a key is in out
	own := make(map[string]int, len(n.Content)/2)
	put := func(p pair) {
		name := p.key.Value
		i, there := at[name]
		if !there {
			at[name] = len(out)
			out = append(out, p)
			return
		}
		out[i] = pair{p.key, together(out[i].value, p.value)}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge" {
			merged, err := r.merged(value, depth+1)
			if err != nil {
				return nil, err
			}
			for _, p := range merged {
				put(p)
			}
			continue
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, r.errorf(key, "unknown key %q: keys are words", clip(key.Value))
		}
		if line, twice := own[key.Value]; twice {
			return nil, r.errorf(key, "duplicate key %q, first on line %d", clip(key.Value), line)
		}
		own[key.Value] = key.Line
		put(pair{key, value})
	}
	return out, nil
}

// merged returns the pairs that the value of a merge key brings: of one mapping, or of a list of them, in which the first
// one that has a key counts.
func (r *reader) merged(n *yaml.Node, depth int) ([]pair, error) {
	from := []*yaml.Node{n}
	if list := resolve(n); list.Kind == yaml.SequenceNode {
		from = list.Content
	}
	var all []pair
	for i := len(from) - 1; i >= 0; i-- {
		if depth > maxMergeDepth {
			return nil, r.errorf(n, "<< is nested more than %d deep", maxMergeDepth)
		}
		pairs, err := r.pairs(from[i], "the value of <<", depth)
		if err != nil {
			return nil, err
		}
		if r.notes.merged += len(pairs) + 1; r.notes.merged > maxMerged {
			return nil, r.errorf(n, "<< brings more than %d keys", maxMerged)
		}
		all = append(all, pairs...)
	}
	return all, nil
}

// together returns the value of a key that has two, the second of which counts.
func together(first, second *yaml.Node) *yaml.Node {
	if resolve(first).Kind != yaml.MappingNode || resolve(second).Kind != yaml.MappingNode {
		return second
	}
	merge := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!merge", Value: "<<", Line: second.Line}
	list := &yaml.Node{Kind: yaml.SequenceNode, Line: second.Line, Content: []*yaml.Node{second, first}}
	return &yaml.Node{Kind: yaml.MappingNode, Line: second.Line, Content: []*yaml.Node{merge, list}}
}

// maxWarnings is the most warnings that a configuration keeps, and the most files that it names as not read.
const maxWarnings = 100

// notes are what a parser notes beside the configuration.
type notes struct {
	warnings []string
	merged   int // pairs that merge keys brought
}
