package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A reader walks YAML nodes and prefixes every error with the file's name and the line.
type reader struct {
	defaults Defaults
	file     string
}

func (r *reader) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.file, n.Line, fmt.Sprintf(format, args...))
}

// A field reads the value of one key of a mapping.
type field func(n *yaml.Node) error

// mapping reads a mapping with the field of each key. Keys must be unique. What names the mapping in errors.
func (r *reader) mapping(n *yaml.Node, what string, fields map[string]field) error {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "%s must be a mapping of keys to values", what)
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		if line, twice := seen[name]; twice {
			return r.errorf(key, "duplicate key %q, first on line %d", clip(name), line)
		}
		seen[name] = key.Line
		read := fields[name]
		if read == nil {
			known := make([]string, 0, len(fields))
			for name := range fields {
				known = append(known, name)
			}
			slices.Sort(known)
			return r.errorf(key, "unknown key %q: %s can have %s", clip(name), what, strings.Join(known, ", "))
		}
		if err := read(value); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) list(n *yaml.Node, what string, read field) error {
	n = resolve(n)
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
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(into) != nil {
			return r.errorf(n, "%s must be true or false", what)
		}
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

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
