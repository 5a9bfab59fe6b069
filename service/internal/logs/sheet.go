package logs

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// A sheet is a table with a line of names above its columns.
type sheet struct {
	flags uint // of tabwriter
	rows  [][]string
}

func (s *sheet) row(cells ...string) { s.rows = append(s.rows, cells) }

// write writes the sheet.
func (s *sheet) write(t *text) {
	table := t.table(s.flags)
	for _, row := range s.rows {
		end := "\n"
		if s.flags&tabwriter.AlignRight != 0 {
			end = "\t\n"
		}
		fmt.Fprint(table, strings.Join(row, "\t"), end)
	}
	_ = table.Flush() // the text keeps the error
}
