package config

import (
	"fmt"
	"maps"
	"regexp"
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

// A scalarKind is what a scalar is in YAML 1.1, the version that Envoy's service reads: yes is a boolean there, and 010
// is 8.
type scalarKind int

const (
	textScalar scalarKind = iota
	nullScalar
	boolScalar
	intScalar    // within 64 bits and a sign
	numberScalar // any other number, such as 1.5, 1e3 and .inf
	otherScalar  // such as !!binary
)

var (
	nulls  = []string{"", "~", "null", "Null", "NULL"}
	trues  = []string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"}
	falses = []string{"n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"}

	notFinite = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
	decimal   = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// kindOf returns the kind of a scalar. A quoted one is text.
func kindOf(n *yaml.Node) scalarKind {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&quoted != 0 {
			return textScalar
		}
		return plainKind(n.Value)
	}
	tags := map[string]scalarKind{"!!null": nullScalar, "!!bool": boolScalar, "!!int": intScalar, "!!float": numberScalar}
	want, known := tags[n.ShortTag()]
	switch is := plainKind(n.Value); {
	case n.ShortTag() == "!!binary":
		return otherScalar
	case !known:
		return textScalar
	case is == want || is == intScalar && want == numberScalar:
		return want
	}
	return otherScalar
}

// plainKind returns the kind of a scalar without quotes.
func plainKind(text string) scalarKind {
	switch {
	case slices.Contains(nulls, text):
		return nullScalar
	case slices.Contains(trues, text), slices.Contains(falses, text):
		return boolScalar
	case notFinite.MatchString(text):
		return numberScalar
	case !strings.ContainsRune("0123456789+-.", rune(text[0])):
		return textScalar
	}
	digits := strings.ReplaceAll(text, "_", "")
	if text[0] == '.' {
		digits = text
	} else {
		if _, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return intScalar
		}
		if _, err := strconv.ParseUint(digits, 0, 64); err == nil {
			return numberScalar
		}
	}
	if decimal.MatchString(digits) {
		return numberScalar
	}
	return textScalar
}

// integer returns the value of an intScalar.
func integer(n *yaml.Node) int64 {
	v, _ := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return v
}

// str reads a scalar of a key that Envoy's service has. Like there, a number with a fraction or an exponent is none: it
// could be written in other ways, such as 1e3 and 1000, and only one of them would match.
func (r *reader) str(what string, into *string) field {
	return func(n *yaml.Node) error {
		n = resolve(n)
		if n.Kind != yaml.ScalarNode {
			return r.errorf(n, "%s must be a string", what)
		}
		switch kindOf(n) {
		case nullScalar:
			*into = ""
		case numberScalar:
			return r.errorf(n, "%s is the number %s: put it into quotes", what, clip(n.Value))
		case otherScalar:
			return r.errorf(n, "%s is a %s: write it as a string, without the tag", what, clip(n.ShortTag()))
		default:
			*into = n.Value
		}
		return nil
	}
}
