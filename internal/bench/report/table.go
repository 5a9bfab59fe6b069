package report

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Table is a table of Markdown.
type Table struct{ table.Writer }

// NewTable returns a table with a head. The first column is aligned left, the others right.
func NewTable(head ...string) Table {
	t := Table{table.NewWriter()}
	t.Style().Markdown.PadContent = true // readable in a terminal, too
	names, columns := table.Row{}, []table.ColumnConfig{}
	for i, name := range head {
		align := text.AlignRight
		if i == 0 {
			align = text.AlignLeft
		}
		names = append(names, name)
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align})
	}
	t.AppendHeader(names)
	t.SetColumnConfigs(columns)
	return t
}

// Row adds a row, each cell as fmt.Sprint prints it.
func (t Table) Row(cells ...any) { t.AppendRow(cells) }

// String returns the table as Markdown.
func (t Table) String() string { return t.RenderMarkdown() }
