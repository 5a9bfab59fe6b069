package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Format is the format of the lines of a log.
type Format uint8

// The formats.
const (
	Auto     Format = iota // detected from the first lines
	Combined               // the common and the combined format of Apache and nginx, also around X-Forwarded-For
	JSON                   // one object per line: nginx, Caddy, Traefik, Envoy and others
	CSV                    // the first line names the columns
	ALB                    // AWS application load balancers
	HAProxy                // HAProxy's HTTP log
	Traefik                // Traefik's text or JSON
	Envoy                  // Envoy's and Istio's default text, or JSON
	Logfmt                 // key=value pairs
)

var formatNames = []string{"auto", "combined", "json", "csv", "alb", "haproxy", "traefik", "envoy", "logfmt"}

// aliases are names by which people know a format.
var aliases = map[string]Format{"common": Combined, "main": Combined, "vhost_combined": Combined, "caddy": JSON}

// String returns the format's name, such as "combined".
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// FormatNames returns the names of formats that [ParseFormat] accepts, with those that are another one's too: "main",
// that of nginx's packages, is combined with X-Forwarded-For behind it.
func FormatNames() []string {
	return append(slices.Clone(formatNames), sorted(aliases)...)
}

// ParseFormat parses a format's name.
func ParseFormat(name string) (Format, error) {
	if i := slices.Index(formatNames, name); i >= 0 {
		return Format(i), nil
	}
	if f, ok := aliases[name]; ok {
		return f, nil
	}
	return Auto, fmt.Errorf("unknown format %q: use one of %s", name, strings.Join(FormatNames(), ", "))
}

func formatList() string { return strings.Join(formatNames[1:], ", ") }

// errNoRecord is returned for a line that belongs to the log and is not a request: the one that names the columns.
var errNoRecord = errors.New("no record")

// A parser reads lines of one format. The error errNoRecord is for a line that belongs to the log without being a request.
type parser interface {
	parse(line []byte, r *Record) error
}

type parserFunc func(line []byte, r *Record) error

func (f parserFunc) parse(line []byte, r *Record) error { return f(line, r) }

func textParser(parse func(string, *Record) error) parser {
	return parserFunc(func(line []byte, r *Record) error { return parse(string(line), r) })
}

// newParser returns a parser of the lines of one log.
func newParser(format Format, names naming) parser {
	switch format {
	case JSON:
		return &namedLines{names: names, read: readJSON}
	case Logfmt:
		return &namedLines{names: names, read: readLogfmt}
	case CSV:
		return &table{names: names}
	case ALB:
		return textParser(parseALB)
	case HAProxy:
		return textParser(parseHAProxy)
	case Envoy:
		return either{&namedLines{names: names, read: readJSON}, textParser(parseEnvoy)}
	case Traefik:
		return either{&namedLines{names: names, read: readJSON}, textParser(parseCombined)}
	}
	return textParser(parseCombined)
}

// either reads objects and text.
type either struct{ object, text parser }

func (e either) parse(line []byte, r *Record) error {
	if line[0] == '{' {
		return e.object.parse(line, r)
	}
	return e.text.parse(line, r)
}

// namedLines reads lines whose fields have names.
type namedLines struct {
	names naming
	read  func([]byte) (object, error)
	// strict is set for a log in which other lines are requests: then one without any of a request's fields is none.
	strict bool
}

var errNotRequest = errors.New("not a request: it names no client, method, path or status")

func (n *namedLines) parse(line []byte, r *Record) error {
	fields, err := n.read(line)
	if err != nil {
		return err
	}
	if err = n.names.fill(r, fields); err == nil && n.strict && !r.isRequest() {
		return errNotRequest
	}
	return err
}

// compileFormat compiles the format string of a server.
func compileFormat(format string) (*layout, error) {
	var l *layout
	var err error
	switch {
	case configure.MatchString(format):
		l, err = compileApache(format)
	case logFormat.MatchString(format), variable.MatchString(format):
		l, err = compileNginx(format)
	case strings.Contains(format, "%"):
		l, err = compileApache(format)
	default:
		err = errors.New("it has neither nginx's $variables nor Apache's %directives")
		if _, isName := ParseFormat(strings.TrimSpace(format)); isName == nil {
			err = fmt.Errorf("%w; %q is the name of a format", err, strings.TrimSpace(format))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the log format %q: %w", first(format, shownText), err)
	}
	return l, nil
}
