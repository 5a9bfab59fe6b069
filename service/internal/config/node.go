package config

import (
	"fmt"
	"maps"
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

// removed are keys of earlier versions, with what to write instead.
var removed = map[string]string{
	"home":          "the one home of --home keeps the charges of every rule with scope: global; remove the key",
	"reserve_below": "give the calls that stop earlier a rule with smaller limits of its own",
}

// mapping reads a mapping with the field of each key. Keys must be unique. What names the mapping in errors.
func (r *reader) mapping(n *yaml.Node, what string, fields map[string]field) error {
	pairs, err := r.pairs(n, what, 0)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		read := fields[p.key.Value]
		if read == nil {
			if instead := removed[p.key.Value]; instead != "" {
				return r.errorf(p.key, "the key %s is no longer known: %s", p.key.Value, instead)
			}
			known := slices.Sorted(maps.Keys(fields))
			return r.errorf(p.key, "unknown key %q: %s can have %s", clip(p.key.Value), what, strings.Join(known, ", "))
		}
		if err := read(p.value); err != nil {
			return err
		}
	}
	return nil
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
func (r *reader) text(what string, into *string) field {
	return func(n *yaml.Node) error {
		n = resolve(n)
		if n.Kind != yaml.ScalarNode {
			return r.errorf(n, "%s must be a string", what)
		}
		*into = n.Value
		if n.ShortTag() == "!!null" {
			*into = ""
		}
		return nil
	}
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

// set reads a boolean that must be there.
func (r *reader) set(what string, into *bool) field {
	return func(n *yaml.Node) error {
		if isNull(resolve(n)) {
			return r.errorf(n, "%s must be true or false", what)
		}
		return r.boolean(what, into)(n)
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
