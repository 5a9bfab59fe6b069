package accesslog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Detection reads lines until enough of them are requests in one format, and at most sampled lines.
const (
	sampled   = 400
	isRequest = 1000 // the weight of a line that is a request
	enough    = 40 * isRequest
)

type parser interface {
	parse(line []byte, r *Record) error
}

type namedLines struct {
	names naming
	read  func([]byte) (others, error)
	// strict is set for a log that mixes requests with other lines. A line without any field of a request is then skipped.
	strict bool
}

func (n *namedLines) parse(line []byte, r *Record) error {
	from, err := n.read(line)
	if err == nil {
		err = n.names.fill(r, from)
	}
	if err == nil && n.strict && (!r.isRequest() || r.Field("logger") == "http.log.error") { // Caddy logs the same request once more
		return errNotRequest
	}
	return err
}

func (f *format) parser(names naming) parser {
	switch {
	case f.read != nil:
		return &namedLines{names: names, read: f.read}
	case f.layouts == nil:
		return &table{all: names}
	}
	var all layouts
	for _, l := range f.layouts {
		all = append(all, l.bound(names))
	}
	return all
}

// A reading is one way to read the lines of a log, and the weight of the lines that fit it.
type reading struct {
	format    *format
	wrappings []*wrapping
	about     string // the name of the format of the first lines
	layout    *layout
	weight    int // 1 for each line, or more if it is a request
}

// A detector determines from the first lines of a log how to read it.
type detector struct {
	names    naming
	formats  []format
	parsers  []parser // of each format
	readings []*reading
	around   string // the line with its wrappings
}

func (d *detector) prepare() {
	for i := range d.formats {
		d.parsers = append(d.parsers, d.formats[i].parser(d.names))
	}
}

// detect returns the reading that fits most of the first lines, or nil if none fits.
func (d *detector) detect(start []byte) *reading {
	d.prepare()
	from := newLines(bufio.NewReaderSize(bytes.NewReader(start), readAhead))
	isFirst := true
	for range sampled {
		line, err := from.next()
		d.around = string(line)
		if err != nil || len(line) > 0 && d.line(line, nil, isFirst) >= enough {
			break
		}
		isFirst = isFirst && len(line) > 0 && line[0] == '#' // comments before the names of columns
	}
	var best *reading
	for _, r := range d.readings {
		if best == nil || r.weight > best.weight {
			best = r
		}
	}
	return best
}

// line records the reading that fits one line, and prefers the one with the most wrappings. It returns the
// weight of that reading so far, or 0 if none fits.
func (d *detector) line(line []byte, outer []*wrapping, isFirst bool) int {
	for i := range wrappings {
		w := &wrappings[i]
		if len(outer) == mostWrappings || w.outermost && len(outer) > 0 {
			continue
		}
		if inner, ok := w.unwrap(line); ok && len(inner) > 0 {
			if weight := d.line(inner, append(slices.Clip(outer), w), isFirst); weight > 0 {
				return weight
			}
		}
	}
	this, ok := d.recognize(line, isFirst)
	if !ok {
		return 0
	}
	this.wrappings = outer
	for _, r := range d.readings {
		if r.format == this.format && r.layout == this.layout && slices.Equal(r.wrappings, outer) {
			if r.weight < isRequest {
				r.about = this.about
			}
			r.weight += this.weight
			return r.weight
		}
	}
	d.readings = append(d.readings, &this)
	return this.weight
}

func (d *detector) recognize(line []byte, isFirst bool) (reading, bool) {
	for i := range d.formats {
		f, r := &d.formats[i], Record{around: d.around}
		if f.begins != 0 && line[0] != f.begins {
			continue
		}
		this := reading{format: f, about: f.name, weight: 1}
		if f.read == nil && f.layouts == nil {
			this.weight = isRequest
			if header := (&table{all: d.names}); isFirst && header.header(string(line)) == nil && len(header.columns) > 1 {
				return this, true
			}
			continue
		}
		if d.parsers[i].parse(line, &r) != nil {
			continue
		}
		if r.isRequest() {
			this.weight = isRequest
		} else if f.name == "logfmt" {
			continue
		}
		if from, ok := r.other.(row); ok {
			this.layout = from.layout
		}
		this.about = f.describe(&r)
		return this, true
	}
	return reading{}, false
}

func (r *reading) parser(names naming) parser {
	p := r.format.parser(names)
	switch p := p.(type) {
	case *namedLines:
		p.strict = r.weight >= isRequest
	case layouts: // the layout of the first lines comes first
		at := slices.IndexFunc(p, func(l *layout) bool { return l.form == r.layout.form })
		own := p[at]
		copy(p[1:], p[:at])
		p[0] = own
	}
	return p
}

func (r *reading) wrapping() string {
	var names []string
	for _, w := range r.wrappings {
		names = append(names, w.name)
	}
	return strings.Join(names, " around ")
}

// errUnknown returns the error for a log of unknown format. It names what the first line contains and the nearest format.
func (d *detector) errUnknown(name string, start []byte) error {
	text, _, _ := strings.Cut(strings.TrimSpace(string(start)), "\n")
	near, seen := "", strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '\t' })
	o, _ := readJSON([]byte(text))
	pairs, _ := readLogfmt([]byte(text))
	switch {
	case o != nil:
		near, seen = "json without a time", slices.Sorted(maps.Keys(o.(object)))
	case pairs != nil && len(pairs.(object)) > 1:
		near, seen = "logfmt without a time", slices.Sorted(maps.Keys(pairs.(object)))
	case len(seen) > 2:
		near = "csv without a column for the time"
	default:
		best := 0 // the number of values that only this layout explains
		for _, f := range d.formats {
			for _, l := range f.layouts {
				values, err := l.split(text)
				fit := len(slices.DeleteFunc(slices.Clone(l.parts[:len(values.values)]), func(p part) bool { return p.is == nil && !p.quoted }))
				if err != nil && fit > best {
					best, near, seen = fit, fmt.Sprintf("%s, but %v", l.name, err), l.labels[:len(values.values)]
				}
			}
		}
	}
	if near != "" {
		near = fmt.Sprintf("The nearest is %s; the first line has %s. ", near, first(strings.Join(seen, ", "), 10*shownText))
	}
	return fmt.Errorf("%s: the first lines have no known format (%s). %sGive the server's own format string with --log-format, and "+
		"name the field of the time if it is unusual: --field time=NAME", name, strings.Join(FormatNames(), ", "), near)
}

// A wrapping is the text that a log carrier, such as syslog, writes around each line of another program.
type wrapping struct {
	name string // for people
	// outermost is set for a program that writes files of its own, so that no other wrapping is around it.
	outermost bool
	before    *regexp.Regexp // what stands before a line
	key, with string         // or the key of an object that contains the line, and another key that identifies such objects
}

// mostWrappings is how deep wrappings nest: compose around a time around syslog, and one more.
const mostWrappings = 4

const (
	timePattern = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,0-9]*(?:Z|[+-][0-9:]{4,})`
	priority    = `^(?:\d+ <\d{1,3}>|<\d{1,3}>)?` // a stream puts the length of the message first
	tag         = `[^\s\[\]":,]+(?:\[[^\]\s]*\])?: `
	colour      = `(?:\x1b\[[0-9;]*m)?`
)

// anyTime matches a time before a line that contains none, such as a line of Heroku's router.
var anyTime = regexp.MustCompile(timePattern)

// wrappings are tried in this order. In RFC 3164's form the tag and the host may be missing, and newer daemons
// and journalctl write a time of RFC 3339. CRI runtimes write F for a whole line. They split lines of more than
// 16 KB, and the pieces are not joined.
var wrappings = []wrapping{
	{name: "CRI (containerd, CRI-O)", outermost: true, before: regexp.MustCompile(`^` + timePattern + ` std(?:out|err) F(?::\S*)? `)},
	{name: "Docker's JSON", outermost: true, key: "log"},
	{name: "Loki's JSON (logcli)", outermost: true, key: "line", with: "timestamp"},
	{name: "Loki (logcli)", outermost: true, before: regexp.MustCompile(`^` + timePattern + ` \{[^}]*\} +`)},
	{name: "journald's JSON", outermost: true, key: "MESSAGE", with: "__REALTIME_TIMESTAMP"},
	{name: "syslog (RFC 5424)", before: regexp.MustCompile(priority + `1 (?:` + timePattern + `|-)(?: \S+){4} ` +
		`(?:-|(?:\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\])+) ?(?:` + byteOrderMark + `)?`)},
	{name: "syslog (RFC 3164)", before: regexp.MustCompile(priority +
		`(?:` + timePattern + `|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?:` + tag + `|[^\s",]+ (?:` + tag + `)?)`)},
	{name: "names of containers (compose)", before: regexp.MustCompile(`^` + colour + `[\w./-]+ +\| ?` + colour)},
	{name: "names of pods (kubectl --prefix)", before: regexp.MustCompile(`^\[pod/[^\s\]]+\] `)},
	{name: "a time before each line", before: regexp.MustCompile(`^` + timePattern + ` `)},
}

// unwrap returns the line inside the wrapping. It reports false if the line does not have this wrapping.
func (w *wrapping) unwrap(line []byte) ([]byte, bool) {
	if w.before != nil {
		at := w.before.FindIndex(line)
		if at == nil {
			return nil, false
		}
		return line[at[1]:], true
	}
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, []byte(`"`+w.key+`"`)) {
		return nil, false
	}
	var object map[string]json.RawMessage
	var text *string
	if json.Unmarshal(line, &object) != nil || json.Unmarshal(object[w.key], &text) != nil || text == nil {
		return nil, false
	}
	if w.with != "" && object[w.with] == nil {
		return nil, false
	}
	return bytes.TrimRight([]byte(*text), "\r\n"), true
}
