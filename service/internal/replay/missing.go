package replay

import (
	"fmt"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"example.com/sash/service/internal/replay/accesslog"
)

// A Missing is a field that an expression reads and that some records of the log do not have.
type Missing struct {
	// Field is the field as the expression has it, such as user or header("X-Api-Key").
	Field string
	// Records is how many records do not have it, and Of how many there were.
	Records, Of int64
}

// String returns a sentence without its end: "7 of 10 lines have no user".
func (m Missing) String() string {
	return fmt.Sprintf("%d of %d lines have no %s", m.Records, m.Of, m.Field)
}

// A program is a compiled expression, with the fields of a record that it reads.
type program struct {
	code   *vm.Program
	fields []string
}

// missing counts the records without a field.
type missing struct {
	of     int64
	counts []Missing
	now    []int // indices of counts, of the current record
}

func (m *missing) next() {
	m.of++
	m.now = m.now[:0]
}

// add counts a field as missing, once in a record.
func (m *missing) add(name string) {
	i := slices.IndexFunc(m.counts, func(c Missing) bool { return c.Field == name })
	if i < 0 {
		if i = len(m.counts); i >= mostMissing {
			i = mostMissing - 1
		} else {
			m.counts = append(m.counts, Missing{Field: name})
		}
	}
	if !slices.Contains(m.now, i) {
		m.now = append(m.now, i)
		m.counts[i].Records++
	}
}

// mostMissing bounds the names, which expressions may compute.
const mostMissing = 50

// check counts what a function did not find.
func (m *missing) check(function, name, value string) string {
	if value == "" {
		m.add(fmt.Sprintf("%s(%q)", function, name))
	}
	return value
}

// Missing returns the fields that expressions read and that some of the selected records did not have, in the order in
// which they were missed. A request for which an expression fails because of it has no key.
func (s *Selector) Missing() []Missing {
	all := slices.Clone(s.missing.counts)
	for i := range all {
		all[i].Of = s.missing.of
	}
	return all
}

// fieldsOf returns the names of fields in an expression that compiles.
func fieldsOf(text string) []string {
	tree, err := parser.Parse(text)
	if err != nil {
		return nil
	}
	names := &identifiers{}
	ast.Walk(&tree.Node, names)
	return names.fields
}

type identifiers struct{ fields []string }

// Visit implements ast.Visitor.
func (v *identifiers) Visit(node *ast.Node) {
	name, ok := (*node).(*ast.IdentifierNode)
	if ok && slices.Contains(accesslog.Fields(), name.Value) && !slices.Contains(v.fields, name.Value) {
		v.fields = append(v.fields, name.Value)
	}
}
