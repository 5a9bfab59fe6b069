package logs

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// A sheet is a table with a line of names above its columns. Where it is too wide, its lines become columns.
type sheet struct {
	flags uint // of tabwriter
	rows  [][]string
}

func (s *sheet) row(cells ...string) { s.rows = append(s.rows, cells) }

// write writes the sheet within the width of a text.
func (s *sheet) write(t *text) {
	if t.width == 0 || s.columns(s.rows) <= t.width {
		s.lines(t, s.rows, s.flags)
		return
	}
	for rest := s.rows[1:]; len(rest) > 0; {
		n := len(rest) // as many as fit beside each other
		for n > 1 && s.columns(turned(s.rows[0], rest[:n])) > t.width {
			n--
		}
		s.lines(t, turned(s.rows[0], rest[:n]), 0)
		if rest = rest[n:]; len(rest) > 0 {
			t.say("")
		}
	}
}

func (s *sheet) lines(t *text, rows [][]string, flags uint) {
	table := t.table(flags)
	for _, row := range rows {
		end := "\n"
		if flags&tabwriter.AlignRight != 0 {
			end = "\t\n"
		}
		fmt.Fprint(table, strings.Join(row, "\t"), end)
	}
	_ = table.Flush() // the text keeps the error
}

// columns returns how wide rows are.
func (s *sheet) columns(rows [][]string) (all int) {
	for i := range rows[0] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		all += widest + 2
	}
	return all
}

// turned returns the columns as rows.
func turned(names []string, rows [][]string) (all [][]string) {
	for i, name := range names {
		row := []string{name}
		for _, r := range rows {
			row = append(row, r[i])
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "" }) {
			all = append(all, row)
		}
	}
	return all
}

// fitted shortens a name so that so many columns are left beside it.
func (t *text) fitted(name string, others int) string {
	name = printable(name)
	most := t.width - others
	if runes := []rune(name); t.width > 0 && len(runes) > most {
		return string(runes[:max(most-1, 8)]) + "…"
	}
	return name
}
