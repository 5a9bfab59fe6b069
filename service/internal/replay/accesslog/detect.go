package accesslog

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// The first lines decide what a log is: until enough of them are requests, of one kind, but not more than sampled.
const (
	sampled   = 400
	isRequest = 1000 // the weight of a line that is one
	enough    = 40 * isRequest
)

// A parser reads lines of one format.
type parser interface {
	parse(line []byte, r *Record) error
}

// namedLines reads lines whose fields have names.
type namedLines struct {
	names naming
	read  func([]byte) (others, error)
	// strict is set for a log in which other lines are requests: then one without any of a request's fields is none.
	strict bool
}

// parse implements parser.
func (n *namedLines) parse(line []byte, r *Record) error {
	from, err := n.read(line)
	if err == nil {
		err = n.names.fill(r, from)
	}
	if err == nil && n.strict && !r.isRequest() {
		return errNotRequest
	}
	return err
}

// parser returns a parser of the lines of one log.
func (f *format) parser(names naming) parser {
	switch {
	case f.read != nil:
		return &namedLines{names: names, read: f.read}
	case f.layouts == nil:
		return &table{names: names}
	}
	var all layouts
	for _, l := range f.layouts {
		all = append(all, l.bound(names))
	}
	return all
}

// A reading is how the lines of a log may be read, and what speaks for it.
type reading struct {
	format    *format
	wrappings []*wrapping
	about     string // what the format of the first lines is called
	layout    *layout
	weight    int // 1 for each line, or more if it is a request
}

// A detector finds out from the first lines of a log how to read it.
type detector struct {
	names    naming
	formats  []format
	parsers  []parser // of each format
	readings []*reading
}

// detect returns the reading that most of the first lines speak for, or nil if there is none.
func (d *detector) detect(start []byte) *reading {
	for i := range d.formats {
		d.parsers = append(d.parsers, d.formats[i].parser(d.names))
	}
	from := &lines{from: bufio.NewReaderSize(bytes.NewReader(start), 1<<16)}
	for i := 0; i < sampled; i++ {
		line, err := from.next()
		if err != nil || len(line) > 0 && d.line(line, nil, i == 0) >= enough {
			break
		}
	}
	var best *reading
	for _, r := range d.readings {
		if best == nil || r.weight > best.weight {
			best = r
		}
	}
	return best
}

// line records the reading that fits one line, the one with most wrappings first. It returns what speaks for that reading
// so far, or 0 if none fits.
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

// recognize returns the format of a line.
func (d *detector) recognize(line []byte, isFirst bool) (reading, bool) {
	for i := range d.formats {
		f, r := &d.formats[i], Record{}
		if f.begins != 0 && line[0] != f.begins {
			continue
		}
		this := reading{format: f, about: f.name, weight: 1}
		if f.read == nil && f.layouts == nil {
			this.weight = isRequest
			if header := (&table{names: d.names}); isFirst && header.header(string(line)) == nil && len(header.columns) > 1 {
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

// parser returns the parser of a reading.
func (r *reading) parser(names naming) parser {
	p := r.format.parser(names)
	switch p := p.(type) {
	case *namedLines:
		p.strict = r.weight >= isRequest
	case layouts: // that of the first lines comes first
		at := slices.IndexFunc(p, func(l *layout) bool { return l.form == r.layout.form })
		own := p[at]
		copy(p[1:], p[:at])
		p[0] = own
	}
	return p
}

// wrapping names what stands around the lines.
func (r *reading) wrapping() string {
	var names []string
	for _, w := range r.wrappings {
		names = append(names, w.name)
	}
	return strings.Join(names, " around ")
}

// errUnknown is for a log of which no line could be read.
func errUnknown(name string) error {
	return fmt.Errorf("%s: the first lines have no known format (%s): "+
		"give the server's own format string, and name the field of the time if it is unusual", name, strings.Join(FormatNames(), ", "))
}
