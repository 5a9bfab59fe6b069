package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Reader walks the nodes of one YAML file. Its errors name the file and the line. It keeps the first error, so that
// callers read on and check Err once at the end. After an error, what they have read is not valid.
type Reader struct {
	File string
	*Notes
	defaults Defaults // of rules
}

// Notes are what the readers of several files record together.
type Notes struct {
	Err      error
	Warnings []string // at most MaxWarnings
	merged   int      // pairs from merge keys
}

// MaxWarnings is the most warnings that readers keep.
const MaxWarnings = 100

// Documents calls read with the root of each document. It skips a document that has only comments.
func (r *Reader) Documents(text []byte, read func(root *yaml.Node)) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for r.Err == nil {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			said := strings.TrimPrefix(" "+strings.TrimPrefix(err.Error(), "yaml: "), " line ")
			r.keep(fmt.Errorf("%s:%s", r.File, said))
			return
		}
		if len(document.Content) == 1 && !IsNull(document.Content[0]) {
			read(document.Content[0])
		}
	}
}

// Errorf returns an error at a node.
func (r *Reader) Errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.File, n.Line, fmt.Sprintf(format, args...))
}

// Fail records an error at a node.
func (r *Reader) Fail(n *yaml.Node, format string, args ...any) { r.keep(r.Errorf(n, format, args...)) }

func (r *Reader) keep(err error) {
	if r.Err == nil {
		r.Err = err
	}
}

// Warn records what is accepted but probably a mistake.
func (r *Reader) Warn(n *yaml.Node, format string, args ...any) {
	if len(r.Warnings) < MaxWarnings {
		r.Warnings = append(r.Warnings, r.Errorf(n, format, args...).Error())
	}
}

// A Field reads the value of one key of a mapping.
type Field func(n *yaml.Node)

// Mapping reads a mapping, each key by its field. Keys must be unique. What names the mapping in errors.
func (r *Reader) Mapping(n *yaml.Node, what string, fields map[string]Field) {
	for _, p := range r.pairs(n, what, 0) {
		read := fields[p.key.Value]
		if read == nil {
			known := slices.Sorted(maps.Keys(fields))
			r.Fail(p.key, "unknown key %q: %s can have %s", Clip(p.key.Value), what, strings.Join(known, ", "))
			return
		}
		read(p.value)
	}
}

// Fields returns fields that read into a struct, by its tags. They keep a node as it is written.
func (r *Reader) Fields(into any) map[string]Field {
	fields := make(map[string]Field)
	all := reflect.ValueOf(into).Elem()
	for i := range all.NumField() {
		name := all.Type().Field(i).Tag.Get("yaml")
		if name == "" {
			continue
		}
		switch at := all.Field(i).Addr().Interface().(type) {
		case **yaml.Node:
			fields[name] = func(n *yaml.Node) { *at = n }
		case *string:
			fields[name] = r.Str(name, at)
		case *bool:
			fields[name] = func(n *yaml.Node) { *at = r.Boolean(name, n) }
		case *int64:
			fields[name] = func(n *yaml.Node) { *at = r.Units(name, n) }
		}
	}
	return fields
}

// List reads a list. Null is an empty list.
func (r *Reader) List(n *yaml.Node, what string, read Field) {
	n = Resolve(n)
	switch {
	case IsNull(n):
	case n.Kind != yaml.SequenceNode:
		r.Fail(n, "%s must be a list", what)
	default:
		for _, item := range n.Content {
			if r.Err == nil {
				read(item)
			}
		}
	}
}

// Text returns a scalar as it is written: 404 and true are strings here.
func (r *Reader) Text(what string, n *yaml.Node) string {
	switch n = Resolve(n); {
	case n.Kind != yaml.ScalarNode:
		r.Fail(n, "%s must be a string", what)
	case !IsNull(n):
		return n.Value
	}
	return ""
}

// Boolean returns true or false; null is false.
func (r *Reader) Boolean(what string, n *yaml.Node) bool {
	n = Resolve(n)
	var v *bool
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	if n.Kind != yaml.ScalarNode || quoted || n.Decode(&v) != nil {
		r.Fail(n, "%s must be true or false", what)
	}
	return v != nil && *v
}

// Units returns a whole number of at least 1.
func (r *Reader) Units(what string, n *yaml.Node) int64 {
	n = Resolve(n)
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < 1 {
		r.Fail(n, "%s must be a whole number of at least 1", what)
	}
	return v
}

// IsNull reports whether a node is null, or a key without a value.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Resolve returns the node that an alias stands for.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Integer returns the value of a whole number, or false if the node is not one. 010 is 8.
func Integer(n *yaml.Node) (v int64, ok bool) {
	ok = n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Decode(&v) == nil
	return v, ok
}

// Str reads a scalar of a key that Envoy's service has. As there, a number with a fraction or an exponent is invalid:
// it could be written in other ways, such as 1e3 and 1000, and only one of them would match.
func (r *Reader) Str(what string, into *string) Field {
	return func(n *yaml.Node) {
		n = Resolve(n)
		tag := n.ShortTag()
		_, within := Integer(n)
		switch {
		case n.Kind != yaml.ScalarNode:
			r.Fail(n, "%s must be a string", what)
		case tag == "!!null":
			*into = ""
		case tag == "!!float" || tag == "!!int" && !within:
			r.Fail(n, "%s is the number %s: put it into quotes", what, Clip(n.Value))
		case tag == "!!binary":
			r.Fail(n, "%s is a %s: write it as a string, without the tag", what, tag)
		default:
			*into = n.Value
		}
	}
}

// Clip shortens a text for an error.
func Clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// Bounds of merge keys, which can expand a small file into a large one.
const (
	maxMergeDepth = 100
	maxMerged     = 1_000_000 // pairs, in all files
)

type pair struct{ key, value *yaml.Node }

// pairs returns the pairs of a mapping, with the pairs from its merge keys (<<). As in Envoy's service, the last pair
// of a key in the order of the file counts, so a merge key replaces a key before it. Two mappings of a key, such as
// rate_limit, become one with the keys of both. Without a merge key, a repeated key is an error. After an error there
// are no pairs.
func (r *Reader) pairs(n *yaml.Node, what string, depth int) []pair {
	n = Resolve(n)
	if n.Kind != yaml.MappingNode {
		r.Fail(n, "%s must be a mapping of keys to values", what)
		return nil
	}
	out := make([]pair, 0, len(n.Content)/2)
	at := make(map[string]int, len(n.Content)/2) // the index of each key in out
	own := make(map[string]int, len(n.Content)/2)
	put := func(p pair) {
		if i, there := at[p.key.Value]; there {
			out[i] = pair{p.key, together(out[i].value, p.value)}
			return
		}
		at[p.key.Value] = len(out)
		out = append(out, p)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge" {
			for _, p := range r.mergedPairs(value, depth+1) {
				put(p)
			}
			continue
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			r.Fail(key, "unknown key %q: keys are words", Clip(key.Value))
		}
		if line, twice := own[key.Value]; twice {
			r.Fail(key, "duplicate key %q, first on line %d", Clip(key.Value), line)
		}
		own[key.Value] = key.Line
		put(pair{key, value})
	}
	if r.Err != nil {
		return nil
	}
	return out
}

// mergedPairs returns the pairs of a merge key: of one mapping, or of a list of mappings, of which the first with a key counts.
func (r *Reader) mergedPairs(n *yaml.Node, depth int) (all []pair) {
	from := []*yaml.Node{n}
	if list := Resolve(n); list.Kind == yaml.SequenceNode {
		from = list.Content
	}
	for _, mapping := range slices.Backward(from) {
		if depth > maxMergeDepth {
			r.Fail(n, "<< is nested more than %d deep", maxMergeDepth)
		}
		if r.Err != nil {
			return nil
		}
		pairs := r.pairs(mapping, "the value of <<", depth)
		if r.merged += len(pairs) + 1; r.merged > maxMerged {
			r.Fail(n, "<< brings more than %d keys", maxMerged)
		}
		all = append(all, pairs...)
	}
	return all
}

// together returns the value of a key that has two values. The second counts.
func together(first, second *yaml.Node) *yaml.Node {
	if Resolve(first).Kind != yaml.MappingNode || Resolve(second).Kind != yaml.MappingNode {
		return second
	}
	merge := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!merge", Value: "<<", Line: second.Line}
	list := &yaml.Node{Kind: yaml.SequenceNode, Line: second.Line, Content: []*yaml.Node{second, first}}
	return &yaml.Node{Kind: yaml.MappingNode, Line: second.Line, Content: []*yaml.Node{merge, list}}
}
