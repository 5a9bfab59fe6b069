package accesslog

import (
	"bytes"
	"cmp"
	_ "embed" // formats.txt
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logfmt/logfmt"
)

// A format is one kind of log: lines that match one of its layouts, or, without layouts, lines with named fields.
type format struct {
	name    string
	begins  byte // of each line, or 0
	read    func(line []byte) (others, error)
	layouts []*layout
}

//go:embed formats.txt
var formatsText string

// entries returns the lines of formats.txt that begin with the word kind, without that word.
func entries(kind string) (all []string) {
	for line := range strings.Lines(formatsText) {
		if first, rest, _ := strings.Cut(strings.TrimSpace(line), " "); first == kind {
			all = append(all, rest)
		}
	}
	return all
}

func words(kind string) []string { return strings.Fields(strings.Join(entries(kind), " ")) }

// pairs returns the words of such lines as a map from the first word of each pair to the second.
func pairs(kind string) map[string]string {
	all := make(map[string]string)
	for pair := range slices.Chunk(words(kind), 2) {
		all[pair[0]] = pair[1]
	}
	return all
}

var formats = slices.Concat([]format{{name: "json", begins: '{', read: readJSON}}, textFormats(), []format{
	{name: "logfmt", read: readLogfmt},
	{name: "csv"}, // a line names the columns
})

func textFormats() (all []format) {
	for _, entry := range entries("layout") {
		parts := strings.SplitN(entry, " | ", 3)
		pattern, more, _ := strings.Cut(strings.ReplaceAll(parts[2], `\t`, "\t"), "~")
		l := &layout{name: parts[1], form: pattern}
		l.variables(pattern)
		l.least = len(l.parts)
		l.variables(more)
		if err := l.build(); err != nil {
			panic(fmt.Sprintf("formats.txt: %v", err))
		}
		if n := len(all); n == 0 || all[n-1].name != parts[0] {
			all = append(all, format{name: parts[0]})
		}
		all[len(all)-1].layouts = append(all[len(all)-1].layouts, l)
	}
	return all
}

// FormatNames returns the valid names for [Options.Format].
func FormatNames() (names []string) {
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

var jsonOf = entries("json")

func (f *format) describe(r *Record) string {
	switch from := r.other.(type) {
	case row:
		if from.field("xff") != "" && strings.HasPrefix(from.layout.name, "combined") {
			return from.layout.name + " with X-Forwarded-For (nginx's main)"
		} else if from.layout != nil {
			return from.layout.name
		}
	case object:
		for _, by := range jsonOf {
			if field, name, _ := strings.Cut(by, " "); f.name == "json" && from.field(field) != "" {
				return "json (" + name + ")"
			}
		}
	}
	return f.name
}

// A trait describes the possible values of a variable.
type trait struct {
	sample string // an example value, if a value may contain the text that follows it
	list   bool   // the values are separated by ", "
	path   bool   // the value begins with "/", so it may directly follow a host
	port   bool   // the value ends with a port, which is not part of it
	padded bool   // more spaces may precede the value
	is     func(string) bool
}

// anyText is the sample of a value that may contain any text.
const anyText = "a b"

var traits = map[string]trait{
	"remote_addr":      {is: isWord},
	"ident":            {is: func(s string) bool { return isWord(s) && !isAddress(s) }},
	"vhost":            {is: func(s string) bool { return isWord(s) && s != "-" && !isAddress(s) }, port: true},
	"xff":              {is: func(s string) bool { return s == "-" || isForwarded(s) }},
	"start_time":       {is: isNumber},
	"date_time":        {sample: "2006-01-02\t15:04:05", is: isNumber},
	"elapsed_ms":       {is: isNumber, padded: true},
	"status":           {is: func(s string) bool { return s != "" }},
	"time_local":       {sample: "02/Jan/2006:15:04:05 -0700"},
	"start_time_local": {sample: "02/Jan/2006:15:04:05 -0700"},
	"request":          {sample: "GET / HTTP/1.1"},
	"http_user_agent":  {sample: anyText},
}

func isNumber(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

func isWord(s string) bool { return !strings.ContainsAny(s, ` ,"`) }

// A field is one field of a Record. text points to it if it is a string. set parses a value, which is neither empty
// nor "-"; a nil set copies the value. names are its names in logs: the first name that a line has is used.
type field struct {
	name  string
	text  func(*Record) *string
	set   func(*Record, string) error
	names []string
}

const (
	times     = 0
	addresses = 1
	forwarded = 2
	durations = 10
)

var starts, lists, paths, units = words("starts"), words("lists"), words("paths"), durationUnits()

func durationUnits() map[string]float64 {
	all := make(map[string]float64)
	for _, entry := range entries("unit") {
		names := strings.Fields(entry)
		for _, name := range names[1:] {
			all[name], _ = strconv.ParseFloat(names[0], 64)
		}
	}
	return all
}

// start computes the start of the request. The names of its time and its duration determine how.
func (r *Record) start(at, took string, isObject bool) {
	if r.unit == 0 && r.has&hasDuration != 0 {
		r.unit = cmp.Or(units[took], units[at+"+"+took])
		if isObject && r.unit == 1e6 && r.Duration > 0 && r.Duration == math.Trunc(r.Duration) {
			r.unit = 0 // some programs log milliseconds under the same names
		}
	}
	length := int64(r.Duration * r.unit)
	switch r.Written = r.Time; {
	case slices.Contains(starts, at), slices.Contains(starts, took):
		if r.from, r.Written = at, r.Time+length; r.unit == 0 {
			r.Written = 0
		}
	case r.unit > 0 && r.Time-length >= earliest:
		r.from, r.Time = at+" less "+took, r.Time-length
	default: // servers write a line when a request ends
		r.Ended = true
	}
}

// fields are in the order in which they are filled. A request line also sets some of the fields after it.
var fields = named(
	field{"time", nil, (*Record).setTime, nil},
	field{"remote_address", func(r *Record) *string { return &r.RemoteAddress }, func(r *Record, s string) error {
		r.RemoteAddress = withoutPort(strings.TrimSpace(s))
		return nil
	}, nil},
	field{"forwarded_for", func(r *Record) *string { return &r.ForwardedFor }, (*Record).setForwarded, nil},
	field{"user", func(r *Record) *string { return &r.User }, nil, nil},
	field{"request", nil, (*Record).setRequest, nil},
	field{"method", func(r *Record) *string { return &r.Method }, (*Record).setMethod, nil},
	field{"path", func(r *Record) *string { return &r.Path }, (*Record).setTarget, nil},
	field{"query", nil, func(r *Record, s string) error { r.Query = strings.TrimPrefix(s, "?"); return nil }, nil},
	field{"status", nil, (*Record).setStatus, nil},
	field{"bytes", nil, (*Record).setBytes, nil},
	field{"duration", nil, (*Record).setDuration, nil},
	field{"host", func(r *Record) *string { return &r.Host }, nil, nil},
	field{"user_agent", func(r *Record) *string { return &r.UserAgent }, nil, nil},
	field{"referer", func(r *Record) *string { return &r.Referer }, nil, nil},
)

func named(all ...field) []field {
	for i := range all {
		all[i].names = words("names." + all[i].name)
	}
	return all
}

// Fields returns the fields of a Record that [Options.Fields] can map to JSON keys or columns.
func Fields() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

var (
	errNoTime     = errors.New("no time; name its field with time=NAME")
	errNotRequest = errors.New("not a request: it names no client, method, path or status")
)

type naming [][]string

func newNaming(given map[string]string) (naming, error) {
	names := make(naming, len(fields))
	for i, f := range fields {
		names[i] = f.names
	}
	for name, key := range given {
		i := slices.Index(Fields(), name)
		if i < 0 {
			return nil, fmt.Errorf("unknown field %q: use one of %s", name, strings.Join(Fields(), ", "))
		}
		names[i] = []string{key}
	}
	return names, nil
}

// within keeps the names in some. A field that then has no name gets the usual names of that field in some.
func (n naming) within(some []string) naming {
	all := make(naming, len(n))
	for i := range n {
		for _, names := range [][]string{n[i], fields[i].names} {
			if len(all[i]) == 0 {
				all[i] = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(some, name) })
			}
		}
	}
	return all
}

func (f *field) fill(r *Record, value string) error {
	if f.set != nil {
		return f.set(r, value)
	}
	*f.text(r) = value
	return nil
}

// fill fills a Record from named fields. In an object it uses the first value that can be read, because
// programs use the same names for different things.
func (n naming) fill(r *Record, from others) error {
	r.other = from
	_, isObject := from.(object)
	var used [durations + 1]string // the names
	for i, names := range n {
		var wrong error
		for _, name := range names {
			if value := from.field(name); value != "" && value != "-" && (i != forwarded || name != used[addresses]) {
				if i <= durations {
					used[i] = name
				}
				if wrong = fields[i].fill(r, value); wrong == nil || !isObject {
					break
				}
			}
		}
		if wrong == nil && i == times && r.Time == 0 {
			used[i] = "the time before the line"
			if r.setTime(anyTime.FindString(r.around)) != nil {
				wrong = errNoTime
			}
		}
		if wrong != nil {
			return wrong
		}
	}
	r.start(used[times], used[durations], isObject)
	return nil
}

type others interface{ field(name string) string }

// A row is a line of values whose names come from a layout or a header line.
type row struct {
	names, values []string
	layout        *layout // nil of a table
}

func (r row) field(name string) string {
	if i := slices.Index(r.names, name); i >= 0 && i < len(r.values) {
		return r.values[i]
	}
	return ""
}

var (
	errJSON   = errors.New("not a JSON object")
	errLogfmt = errors.New("not of the form key=value other=value")
)

// An object is a line of JSON or of key=value pairs.
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

// field implements others. It returns the first element of a list, because Caddy writes headers as lists.
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

// A table is a log in which a line names the columns. That is the first line, with commas or tabs between names, or a
// #Fields line of the W3C format, of which a log may have several. Values must not contain line ends.
type table struct {
	all, names naming
	columns    []string
	w3c, tabs  bool
}

// errNoRecord is returned for the line that names the columns: it belongs to the log but is not a request.
var errNoRecord = errors.New("no record")

// A headerError reports an invalid line of column names. Without these names, no other line can be read.
type headerError struct{ error }

func (t *table) header(line string) error {
	line, t.w3c = strings.CutPrefix(line, "#Fields: ")
	t.tabs = strings.Contains(line, "\t")
	columns, err := t.split(line)
	if err != nil {
		return headerError{fmt.Errorf("the first line does not name the columns: %w", err)}
	}
	for i, name := range columns {
		if columns[i] = strings.TrimSpace(name); slices.Contains(columns[:i], columns[i]) {
			return headerError{fmt.Errorf("the first line names column %q twice", columns[i])}
		}
	}
	if i := slices.Index(columns, "time-taken"); i >= 0 && slices.Contains(columns, "x-edge-location") {
		columns[i] = "time_taken" // CloudFront logs it in seconds
	}
	if !slices.ContainsFunc(t.all[times], func(name string) bool { return slices.Contains(columns, name) }) {
		return headerError{fmt.Errorf("the first line has no column for the time (one of %s); name it with time=COLUMN",
			strings.Join(t.all[times], ", "))}
	}
	t.columns, t.names = columns, t.all.within(columns)
	return nil
}

func (t *table) parse(line []byte, r *Record) error {
	if isFields := bytes.HasPrefix(line, []byte("#Fields: ")); isFields || t.columns == nil && line[0] != '#' {
		if err := t.header(string(line)); err != nil {
			return err
		}
		return errNoRecord
	} else if line[0] == '#' {
		return errNoRecord
	}
	values, err := t.split(string(line))
	if err != nil {
		return errors.New("invalid quotes")
	}
	if len(values) != len(t.columns) {
		return fmt.Errorf("%d values for %d columns", len(values), len(t.columns))
	}
	day, at := slices.Index(t.columns, "date"), slices.Index(t.columns, "time")
	if day >= 0 && at >= 0 && len(values[day]) == len("2006-01-02") && isNumber(values[at]) && strings.IndexByte(values[at], ':') == 2 {
		values[at] = values[day] + " " + values[at]
	}
	return t.names.fill(r, row{names: t.columns, values: values})
}

func (t *table) split(line string) ([]string, error) {
	switch {
	case strings.Contains(line, "\t") && (t.tabs || t.w3c):
		return strings.Split(line, "\t"), nil
	case t.w3c:
		return strings.Fields(line), nil
	case !strings.Contains(line, `"`):
		return strings.Split(line, ","), nil
	}
	reader := csv.NewReader(strings.NewReader(line))
	reader.FieldsPerRecord = -1
	return reader.Read()
}
