package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"example.com/sash/internal/bench/servers"
)

// A cell of the table has how many tests of a suite passed with a client on a server.
type cell struct{ suite, client, server string }

// title is the head of a server's column.
func title(s servers.Server) string {
	if s.TLS() {
		return s.String()
	}
	return s.String() + ", without TLS"
}

// markdown returns the table, with a dash for what has not run.
func markdown(all []servers.Server, results map[cell]int) string {
	var b strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head := []string{"suite", "client"}
	for _, s := range all {
		head = append(head, title(s))
	}
	line(head...)
	line(slices.Repeat([]string{"---"}, len(head))...)
	for _, s := range suites {
		for _, client := range []string{"go-redis", "rueidis", "both", "none"} {
			row, some := []string{s.name, client}, false
			for _, server := range head[2:] {
				text := "-"
				if n := results[cell{s.name, client, server}]; n > 0 {
					text, some = strconv.Itoa(n), true
				}
				row = append(row, text)
			}
			if some {
				line(row...)
			}
		}
	}
	return b.String()
}

// parse reads a table.
func parse(table string) map[cell]int {
	results := map[cell]int{}
	var head []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if head == nil {
			head = cells
		}
		for i := 2; i < min(len(cells), len(head)); i++ {
			if n, err := strconv.Atoi(cells[i]); err == nil {
				results[cell{cells[0], cells[1], head[i]}] = n
			}
		}
	}
	return results
}

// The table is between these lines of its page.
const begin, end = "<!-- make test-servers writes this table -->\n\n", "\n<!-- end of the table -->\n"

// write replaces what ran, the rows of a suite on a server, in the table of a page, and drops servers and suites that are no
// more.
func write(page string, all []servers.Server, results map[cell]int) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no place for the table: want the lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	ran := map[cell]bool{}
	for c := range results {
		ran[cell{suite: c.suite, server: c.server}] = true
	}
	for c, n := range parse(table) {
		if !ran[cell{suite: c.suite, server: c.server}] {
			results[c] = n
		}
	}
	return os.WriteFile(page, []byte(before+begin+markdown(all, results)+end+after), 0o644)
}
