package accesslog

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
)

// errNoRecord is returned for a line that belongs to the log and is not a request, such as one that names the columns.
var errNoRecord = errors.New("no record")

var errNoColumns = errors.New("before the line #Fields, which names the columns")

// A w3c reads W3C's extended format, in which a line "#Fields:" names the columns: CloudFront separates values by tabs, IIS
// by spaces. Spaces within a value are written as "+" or as "%20".
type w3c struct {
	columns map[string]int
	tabs    bool
	names   naming
}

// parse implements parser.
func (w *w3c) parse(line []byte, r *Record) error {
	if line[0] == '#' {
		if names, ok := bytes.CutPrefix(line, []byte("#Fields:")); ok {
			w.columns, w.tabs = make(map[string]int), false
			for i, name := range strings.Fields(string(names)) {
				w.columns[name] = i
			}
		}
		return errNoRecord
	}
	if w.columns == nil {
		return errNoColumns
	}
	row := w3cRow{row{w.columns, strings.Split(string(line), "\t")}}
	if len(row.values) == 1 {
		row.values = strings.Fields(row.values[0])
	}
	if len(row.values) != len(w.columns) {
		return errors.New("the line has more or fewer values than columns")
	}
	err := w.names.fill(r, row)
	r.Query = row.field("cs-uri-query")
	return err
}

// A w3cRow is one line.
type w3cRow struct{ row }

// field implements others.
func (r w3cRow) field(name string) string {
	if name == "time" { // the date is a column of its own
		if date, at := r.row.field("date"), r.row.field("time"); date != "" && at != "" {
			return date + "T" + at
		}
		return r.row.field(name)
	}
	v := r.row.field(name)
	if v == "-" {
		return ""
	}
	if strings.HasPrefix(name, "cs(") || strings.HasPrefix(name, "x-forwarded") {
		for range 2 { // CloudFront encodes some of them twice
			if plain, err := url.QueryUnescape(v); err == nil {
				v = plain
			}
		}
	}
	return v
}
