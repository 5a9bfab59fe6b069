package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
