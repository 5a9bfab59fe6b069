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

// warn notes what is accepted, and probably not meant.
func (r *reader) warn(n *yaml.Node, format string, args ...any) {
	r.notes.add(r.errorf(n, format, args...).Error())
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
		kind := kindOf(n)
		if n.Kind != yaml.ScalarNode || kind != boolScalar && kind != nullScalar {
			return r.errorf(n, "%s must be true or false", what)
		}
		*into = slices.Contains(trues, n.Value)
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

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && kindOf(n) == nullScalar }

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
