package accesslog

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The first lines decide what a log is: until enough of them are requests, of one kind, but not more than sampled.
const (
	sampled = 400
	enough  = 40 * isRequest
)

// A reading is how the lines of a log are read.
type reading struct {
	format    Format
	parser    parser
	wrappings []*wrapping
}

// A guess is a reading, with what speaks for it.
type guess struct {
	reading
	weight int      // 1 for each line, or more if it is a request
	lines  [][]byte // unwrapped
}

// A detector finds out from the first lines of a log how to read it.
type detector struct {
	names   naming
	format  Format  // or Auto
	layout  *layout // or nil
	guesses map[string]*guess
	order   []string
}

// detect returns the reading that most of the first lines speak for, and completes the stats.
func (d *detector) detect(start []byte, stats *Stats) (reading, bool) {
	d.guesses = make(map[string]*guess)
	from := &lines{from: bufio.NewReaderSize(bytes.NewReader(start), 1<<16)}
	for i := 0; i < sampled; i++ {
		line, err := from.next()
		if err != nil {
			break
		}
		if len(line) > 0 && d.line(line, nil, i == 0) >= enough {
			break
		}
	}
	var best *guess
	for _, name := range d.order {
		if g := d.guesses[name]; best == nil || g.weight > best.weight {
			best = g
		}
	}
	if best == nil {
		return reading{}, false
	}
	var outer []string
	for _, w := range best.wrappings {
		outer = append(outer, w.name)
	}
	stats.Wrapping = strings.Join(outer, " around ")
	stats.Format = d.describe(best)
	best.parser = d.newParser(best, stats)
	return best.reading, true
}

// line records the reading that fits one line, the one with most wrappings first. It returns what speaks for that reading
// so far, or 0 if none fits.
func (d *detector) line(line []byte, outer []*wrapping, isFirst bool) int {
	for i := range wrappings {
		w := &wrappings[i]
		if len(outer) == mostWrappings || w.outermost && len(outer) > 0 {
			continue
		}
		inner, err := w.new().unwrap(line)
		if err != nil || len(inner) == 0 {
			continue
		}
		if weight := d.line(inner, append(slices.Clip(outer), w), isFirst); weight > 0 {
			return weight
		}
	}
	format, weight := d.recognize(line, isFirst)
	if weight == 0 {
		return 0
	}
	name := format.String()
	for _, w := range outer {
		name += "/" + w.name
	}
	g := d.guesses[name]
	if g == nil {
		g = &guess{reading: reading{format: format, wrappings: outer}}
		d.guesses[name], d.order = g, append(d.order, name)
	}
	g.weight += weight
	g.lines = append(g.lines, bytes.Clone(line))
	return g.weight
}

const isRequest = 1000 // the weight of a line that is one

// recognize returns the format of a line, and 0 if it has none.
func (d *detector) recognize(line []byte, isFirst bool) (format Format, weight int) {
	var r Record
	try := func(f Format, parse parser) bool {
		err := parse.parse(line, &r)
		if err != nil {
			r = Record{}
			return false
		}
		format, weight = f, 1
		if r.isRequest() || f == CSV {
			weight = isRequest
		}
		return true
	}
	if d.layout != nil {
		try(Auto, d.layout)
		return format, weight
	}
	if d.format == CSV {
		return CSV, isRequest // the first line names the columns, whatever the others are
	}
	if d.format != Auto {
		try(d.format, newParser(d.format, d.names))
		return format, weight
	}
	for _, f := range []Format{JSON, HAProxy, Envoy, Combined, ALB, Logfmt} {
		if (f == JSON) != (line[0] == '{') || f == Envoy && line[0] != '[' {
			continue
		}
		if try(f, newParser(f, d.names)) && (f != Logfmt || weight == isRequest) {
			return format, weight
		}
		weight = 0
	}
	if isFirst && bytes.IndexByte(line, ',') > 0 && (&table{names: d.names}).header(string(line)) == nil {
		return CSV, isRequest
	}
	return Auto, 0
}

// newParser returns the parser of a guess.
func (d *detector) newParser(g *guess, stats *Stats) parser {
	if d.layout != nil {
		return d.layout
	}
	p := newParser(g.format, d.names)
	var samples []others
	strict := false
	for _, line := range g.lines {
		var r Record
		if err := p.parse(line, &r); err == nil && r.isRequest() {
			samples = append(samples, r.other)
			strict = true
		}
	}
	switch g.format {
	case JSON, Logfmt, CSV, Envoy, Traefik:
		samples = slices.DeleteFunc(samples, func(o others) bool { return o == nil })
		if note := d.names.finerTime(samples); note != "" {
			stats.Notes = append(stats.Notes, note)
		}
	}
	p = newParser(g.format, d.names)
	switch p := p.(type) {
	case *namedLines:
		p.strict = strict
	case either:
		p.object.(*namedLines).strict = strict
	}
	return p
}

// describe names the format, for people.
func (d *detector) describe(g *guess) string {
	if d.layout != nil {
		return "the given log format"
	}
	p := newParser(g.format, d.names)
	for _, line := range g.lines {
		var r Record
		if p.parse(line, &r) != nil || !r.isRequest() && g.weight >= isRequest {
			continue
		}
		switch {
		case g.format == JSON || line[0] == '{':
			if by := r.jsonOf(); by != "" {
				return "json (" + by + ")"
			}
			return "json"
		case g.format == Combined:
			return describeCombined(string(line), &r)
		}
	}
	return g.format.String()
}

// jsonOf returns whose JSON it is, by fields that others do not have.
func (r *Record) jsonOf() string {
	for _, by := range []struct{ field, name string }{
		{"DownstreamStatus", "Traefik"}, {"request.remote_ip", "Caddy"}, {"response_code", "Envoy"}, {"remote_addr", "nginx"},
	} {
		if r.Field(by.field) != "" {
			return by.name
		}
	}
	return ""
}

func describeCombined(line string, r *Record) string {
	name := Combined.String()
	switch {
	case r.has&hasDuration != 0:
		return name + " (Traefik)"
	case r.leads:
		return name + " behind X-Forwarded-For"
	case r.Host != "":
		return name + " behind the host (vhost_combined)"
	case r.ForwardedFor != "" || strings.HasSuffix(line, ` "-"`) && strings.Count(line, `"`) == 8:
		return name + ` with X-Forwarded-For (nginx's main)`
	}
	return name
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// errUnknown is for a log of which no line could be read.
func errUnknown(name string) error {
	return fmt.Errorf("%s: the first lines have no known format: set it to one of %s, or give the server's own format string, and name the field of the time if it is unusual", name, formatList())
}
