package accesslog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A layout is a server's format string, compiled: texts, and between them values.
type layout struct {
	before string // the text before the first value
	parts  []part
	form   string // of the parts' times, joined
	leads  bool   // the first value is X-Forwarded-For
}

// A part is a value of a line, and the text behind it.
type part struct {
	directive string // as in the format string, for errors
	name      string // for Record.Field, or ""
	set       func(r *Record, text string) error
	sample    string // what a value looks like, if it may contain the text behind it
	after     string
	list      bool   // values are separated by ", "
	path      bool   // the value begins with "/", so that nothing needs to be between it and a host
	quoted    bool   // between quotation marks, within which others are escaped
	skip      int    // how often the text behind it is in the value
	rank      int    // of several times or clients the highest one counts; 0 for others
	form      string // of a time, in Go's way: those of all parts are parsed together
}

// values are those of a line without a field in Record.
type values struct {
	layout *layout
	texts  []string
}

// field implements others.
func (v values) field(name string) string {
	for i := range v.layout.parts {
		if v.layout.parts[i].name == name {
			return v.texts[i]
		}
	}
	return ""
}

// build checks the parts and computes where each ends.
func (l *layout) build() (*layout, error) {
	timed := false
	previous := l.before
	for i := range l.parts {
		p := &l.parts[i]
		last := i == len(l.parts)-1
		if p.after == "" && !last && !l.parts[i+1].path {
			return nil, fmt.Errorf("nothing separates %s from %s, so a line cannot be divided there", p.directive, l.parts[i+1].directive)
		}
		p.quoted = strings.HasSuffix(previous, `"`) && strings.HasPrefix(p.after, `"`)
		if !p.quoted && p.after != "" {
			p.skip = strings.Count(p.sample, p.after)
		}
		if !p.quoted && p.sample == anyText && strings.HasPrefix(p.after, " ") && strings.TrimSpace(p.after) == "" {
			return nil, fmt.Errorf("%s may contain spaces, and a space follows it: without quotation marks its end cannot be found", p.directive)
		}
		previous = p.after
		timed = timed || p.rank == rankTime || p.rank == rankFine
	}
	if !timed {
		return nil, errors.New("it has no time of the request")
	}
	l.onlyBest()
	var forms []string
	for i := range l.parts {
		if l.parts[i].form != "" {
			forms = append(forms, l.parts[i].form)
		}
	}
	l.form = strings.Join(forms, " ")
	l.leads = l.parts[0].name == "http_x_forwarded_for"
	return l, nil
}

// Ranks of directives for the same field. Those of clients are below rankTime.
const (
	rankPeer = iota + 1
	rankHost // a name, unless it is an address
	rankClient
	rankTime // and finer times are higher
	rankFine
	rankFraction // an addition to another time
)

// onlyBest ignores the times and clients of which there are better ones.
func (l *layout) onlyBest() {
	best := func(from, to int) {
		top := 0
		for i := range l.parts {
			if r := l.parts[i].rank; r >= from && r <= to {
				top = max(top, r)
			}
		}
		for i := range l.parts {
			if r := l.parts[i].rank; r >= from && r <= to && r < top {
				l.parts[i].set, l.parts[i].form = nil, ""
			}
		}
	}
	best(rankPeer, rankClient)
	best(rankTime, rankFine)
}

// anyText is the sample of a value that may contain anything.
const anyText = "a b"

// parse implements parser.
func (l *layout) parse(line []byte, r *Record) error {
	text, ok := strings.CutPrefix(string(line), l.before)
	if !ok {
		return fmt.Errorf("it does not begin with %q", l.before)
	}
	v := values{l, make([]string, len(l.parts))}
	var at []string
	for i := range l.parts {
		p := &l.parts[i]
		value, rest, err := p.cut(text, i == len(l.parts)-1)
		if err != nil {
			return err
		}
		text = rest
		if value = unescaped(value); value == "-" {
			value = ""
		}
		v.texts[i] = value
		if p.form != "" {
			at = append(at, value)
		}
		if p.set == nil || value == "" {
			continue
		}
		if err := p.set(r, value); err != nil {
			return fmt.Errorf("%s: %w", p.directive, err)
		}
	}
	if l.form != "" {
		t, err := time.Parse(l.form, strings.Join(at, " "))
		if err != nil {
			return errTime
		}
		r.Time += t.UnixMicro() // beside a fraction
	}
	if _, err := inRange(r.Time); err != nil {
		return err
	}
	r.other = v
	r.leads = l.leads
	return nil
}

// cut takes the value off the front of a text, and what follows it.
func (p *part) cut(text string, last bool) (value, rest string, err error) {
	switch {
	case p.quoted:
		end := closing(text)
		if end < 0 || !strings.HasPrefix(text[end:], p.after) {
			return "", "", fmt.Errorf("%s does not end with %q", p.directive, p.after)
		}
		return text[:end], text[end+len(p.after):], nil
	case p.after == "" && last:
		return text, "", nil
	case p.after == "": // a path follows
		end := strings.IndexByte(text, '/')
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], nil
	}
	from := 0
	for skip := p.skip; ; {
		end := strings.Index(text[from:], p.after)
		if end < 0 {
			return "", "", fmt.Errorf("%q is missing behind %s", p.after, p.directive)
		}
		end += from
		if skip > 0 && text[:end] != "-" {
			skip--
			from = end + len(p.after)
			continue
		}
		if p.list && strings.HasSuffix(text[:end], ",") {
			from = end + len(p.after)
			continue
		}
		return text[:end], text[end+len(p.after):], nil
	}
}

// closing returns where a quotation mark ends a text, or -1.
func closing(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// unescaped undoes what Apache and nginx write for quotation marks and control characters, and what JSON has for them.
func unescaped(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		size := 0 // of a number in hexadecimal digits
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'x':
			size = 2
		case 'u':
			size = 4
		default:
			b.WriteByte(s[i])
		}
		if size == 0 {
			continue
		}
		code, err := strconv.ParseUint(s[i+1:min(len(s), i+1+size)], 16, 16)
		if err != nil || i+size >= len(s) {
			b.WriteString(s[i-1 : i+1])
			continue
		}
		if i += size; size == 2 {
			b.WriteByte(byte(code))
		} else {
			b.WriteRune(rune(code))
		}
	}
	return b.String()
}
