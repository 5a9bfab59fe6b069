package instructions

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/sash/internal/bench/report"
)

// A Row is a kind of decision and its instructions.
type Row struct {
	Name  string
	Count float64
}

// column is the head of the counts in a table.
const column = "instructions"

// NewTable returns a table of rows, with further columns.
func NewTable(further ...string) report.Table {
	return report.NewTable(append([]string{"a decision", column}, further...)...)
}

// Read returns the rows of all tables in a page.
func Read(page []byte) ([]Row, error) {
	var rows []Row
	inside := false
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) < 4 {
			inside = false
			continue
		}
		name, count := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		switch {
		case count == column:
			inside = true
		case inside && !strings.HasPrefix(name, ":-"):
			n, err := strconv.ParseFloat(count, 64)
			if err != nil {
				return nil, fmt.Errorf("instructions: the row %q: %w", name, err)
			}
			rows = append(rows, Row{name, n})
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("instructions: the page has no counts")
	}
	return rows, nil
}

// small is the change that says nothing: counts differ as much from run to run.
const small = 0.01

// Differences returns a line for every row that changed by more than 1 %, came or went.
func Differences(before, now []Row) []string {
	var lines []string
	old := map[string]float64{}
	for _, row := range before {
		old[row.Name] = row.Count
	}
	for _, row := range now {
		was, known := old[row.Name]
		delete(old, row.Name)
		if !known {
			lines = append(lines, fmt.Sprintf("%s: %.0f instructions, new", row.Name, row.Count))
		} else if change := row.Count/was - 1; change > small || change < -small {
			lines = append(lines, fmt.Sprintf("%s: %.0f instructions, were %.0f (%+.1f %%)", row.Name, row.Count, was, 100*change))
		}
	}
	for _, row := range before {
		if _, gone := old[row.Name]; gone {
			lines = append(lines, row.Name+": gone")
		}
	}
	return lines
}
