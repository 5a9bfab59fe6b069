package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Document is what a run writes: sections of prose and tables.
type Document struct {
	parts []part
}

type part struct {
	title string
	prose string
	table *Table
	plot  *Plot
}

// A Table has a head and rows of the same length.
type Table struct {
	Head []string
	Rows [][]string
}

// Row adds a row; every cell is written with fmt.Sprint.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Section starts a section. The prose is Markdown.
func (d *Document) Section(title, prose string) {
	d.parts = append(d.parts, part{title: title, prose: strings.TrimSpace(prose)})
}

// Table adds a table to the section.
func (d *Document) Table(t *Table) { d.parts = append(d.parts, part{table: t}) }

// Plot adds a picture to the section.
func (d *Document) Plot(p *Plot) { d.parts = append(d.parts, part{plot: p}) }

// Plots returns the pictures.
func (d *Document) Plots() (all []*Plot) {
	for _, p := range d.parts {
		if p.plot != nil {
			all = append(all, p.plot)
		}
	}
	return all
}

// Prose adds a paragraph to the section.
func (d *Document) Prose(text string) {
	d.parts = append(d.parts, part{prose: strings.TrimSpace(text)})
}

// WriteText writes titles and tables for a terminal; the prose is for readers of the Markdown.
func (d *Document) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range d.parts {
		if p.title != "" {
			fmt.Fprintf(tw, "\n%s\n", p.title)
		}
		if p.table == nil {
			continue
		}
		for _, row := range append([][]string{p.table.Head}, p.table.Rows...) {
			fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// WriteMarkdown writes everything. With title, the first section is the title of the whole.
func (d *Document) WriteMarkdown(w io.Writer, title bool) error {
	var b strings.Builder
	level := "##"
	if title {
		level = "#"
	}
	for _, p := range d.parts {
		if p.title != "" {
			fmt.Fprintf(&b, "%s %s\n\n", level, p.title)
			level = "##"
		}
		if p.prose != "" {
			b.WriteString(p.prose + "\n\n")
		}
		if p.plot != nil {
			fmt.Fprintf(&b, "![%s](%s)\n\n", p.plot.Title, p.plot.File)
		}
		if p.table != nil {
			line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
			line(p.table.Head)
			line(append([]string{"---"}, slices.Repeat([]string{"---:"}, len(p.table.Head)-1)...))
			for _, row := range p.table.Rows {
				line(row)
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}
