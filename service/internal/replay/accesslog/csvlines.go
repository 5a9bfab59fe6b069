package accesslog

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strings"
)

// A table is CSV whose first line names the columns. Values must not contain line ends.
type table struct {
	columns map[string]int
	names   naming
}

// A row is one line of a table.
type row struct {
	columns map[string]int
	values  []string
}

// A headerError is about the line that names the columns, without which no other line can be read.
type headerError struct{ error }

// header reads the line that names the columns.
func (t *table) header(line string) error {
	columns, err := splitCSV(strings.TrimPrefix(line, byteOrderMark))
	if err != nil {
		return headerError{fmt.Errorf("the first line does not name the columns: %w", err)}
	}
	t.columns = make(map[string]int, len(columns))
	for i, name := range columns {
		name = strings.TrimSpace(name)
		if _, twice := t.columns[name]; twice {
			return headerError{fmt.Errorf("the first line names column %q twice", name)}
		}
		t.columns[name] = i
	}
	for _, name := range t.names["time"] {
		if _, ok := t.columns[name]; ok {
			return nil
		}
	}
	return headerError{fmt.Errorf("the first line has no column for the time (one of %s); name it with time=COLUMN", strings.Join(t.names["time"], ", "))}
}

// parse implements parser.
func (t *table) parse(line []byte, r *Record) error {
	if t.columns == nil {
		if err := t.header(string(line)); err != nil {
			return err
		}
		return errNoRecord
	}
	values, err := splitCSV(string(line))
	if err != nil {
		return errors.New("invalid quotes")
	}
	if len(values) != len(t.columns) {
		return fmt.Errorf("%d values for %d columns", len(values), len(t.columns))
	}
	return t.names.fill(r, row{t.columns, values})
}

// field implements others.
func (r row) field(name string) string {
	if i, ok := r.columns[name]; ok {
		return r.values[i]
	}
	return ""
}

func splitCSV(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Split(line, ","), nil
	}
	reader := csv.NewReader(strings.NewReader(line))
	reader.FieldsPerRecord = -1
	return reader.Read()
}
