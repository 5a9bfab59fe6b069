// Package scaling computes what docs/scaling.md says of large deployments from the tables of docs/benchmarks-scale.md, and
// writes it there. It computes with the figures as they are printed, so that a reader can do the same.
package scaling

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A page is the tables of a page of Markdown.
type page []table

type table struct {
	head []string
	rows [][]string
}

// read reads the tables.
func read(text string) (p page) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !inside:
			p, inside = append(p, table{head: cells}), true
		case !strings.HasPrefix(line, "|:"):
			p[len(p)-1].rows = append(p[len(p)-1].rows, cells)
		}
	}
	return p
}

// cell returns a cell: of the table whose first column has a name, of the row that begins with some cells, and of a column.
func (p page) cell(name, column string, row ...string) (string, error) {
	for _, t := range p {
		if t.head[0] != name {
			continue
		}
		for _, cells := range t.rows {
			if len(cells) != len(t.head) || strings.Join(cells[:len(row)], "|") != strings.Join(row, "|") {
				continue
			}
			for i, head := range t.head {
				if head == column {
					return cells[i], nil
				}
			}
		}
	}
	return "", fmt.Errorf("scaling: benchmarks-scale.md has no cell %q of the row %q in the table %q", column, row, name)
}

// rounds is how report.Figure prints the rounds of a figure: the median, the lowest and the highest.
var rounds = regexp.MustCompile(`^([0-9.]+) \(([0-9.]+)-([0-9.]+)\)$`)

// An amount is a figure and the bounds of its uncertainty.
type amount struct{ value, low, high float64 }

// figure reads a figure with its lowest and its highest round.
func (p page) figure(name, column string, row ...string) (a amount, err error) {
	text, err := p.cell(name, column, row...)
	if err != nil {
		return a, err
	}
	parts := rounds.FindStringSubmatch(text)
	if parts == nil {
		return a, fmt.Errorf("scaling: %q in the table %q of benchmarks-scale.md is no figure", text, name)
	}
	for i, to := range []*float64{&a.value, &a.low, &a.high} {
		if *to, err = strconv.ParseFloat(parts[i+1], 64); err != nil {
			return a, err
		}
	}
	return a, nil
}

// number reads a plain number.
func (p page) number(name, column string, row ...string) (float64, error) {
	text, err := p.cell(name, column, row...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// slope reads a slope and its uncertainty, from two columns.
func (p page) slope(name, column, within, row string) (a amount, err error) {
	if a.value, err = p.number(name, column, row); err != nil {
		return a, err
	}
	w, err := p.number(name, within, row)
	a.low, a.high = a.value-w, a.value+w
	return a, err
}
