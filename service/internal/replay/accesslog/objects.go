package accesslog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logfmt/logfmt"
)

var (
	errJSON   = errors.New("not a JSON object")
	errLogfmt = errors.New("not of the form key=value other=value")
)

// An object is one line of JSON, or of key=value pairs.
type object map[string]any

func readJSON(line []byte) (others, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var o object
	if err := decoder.Decode(&o); err != nil || o == nil || decoder.More() {
		return nil, errJSON
	}
	return o, nil
}

func readLogfmt(line []byte) (others, error) {
	if bytes.IndexByte(line, '=') < 0 {
		return nil, errLogfmt
	}
	o := make(object)
	decoder := logfmt.NewDecoder(bytes.NewReader(line))
	for decoder.ScanRecord() {
		for decoder.ScanKeyval() {
			if value := decoder.Value(); len(value) > 0 {
				o[string(decoder.Key())] = string(value)
			}
		}
	}
	if decoder.Err() != nil {
		return nil, errLogfmt
	}
	return o, nil
}

// field implements others. For a list it returns the first element, because Caddy writes headers as lists.
func (o object) field(name string) string {
	v, ok := o[name]
	if !ok {
		in, below, nested := strings.Cut(name, ".")
		if !nested {
			return ""
		}
		inner, _ := o[in].(map[string]any)
		return object(inner).field(below)
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// A table is CSV whose first line names the columns. Values must not contain line ends.
type table struct {
	names   naming
	columns []string
}

// errNoRecord is for the line that names the columns: it belongs to the log without being a request.
var errNoRecord = errors.New("no record")

// A headerError is about the line that names the columns, without which no other line can be read.
type headerError struct{ error }

// header reads the line that names the columns.
func (t *table) header(line string) error {
	columns, err := splitCSV(line)
	if err != nil {
		return headerError{fmt.Errorf("the first line does not name the columns: %w", err)}
	}
	for i, name := range columns {
		if columns[i] = strings.TrimSpace(name); slices.Contains(columns[:i], columns[i]) {
			return headerError{fmt.Errorf("the first line names column %q twice", columns[i])}
		}
	}
	if !slices.ContainsFunc(t.names[times], func(name string) bool { return slices.Contains(columns, name) }) {
		return headerError{fmt.Errorf("the first line has no column for the time (one of %s); name it with time=COLUMN",
			strings.Join(t.names[times], ", "))}
	}
	t.columns, t.names = columns, t.names.within(columns)
	return nil
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
	return t.names.fill(r, row{names: t.columns, values: values})
}

func splitCSV(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Split(line, ","), nil
	}
	reader := csv.NewReader(strings.NewReader(line))
	reader.FieldsPerRecord = -1
	return reader.Read()
}
