package accesslog

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/sash/httplimit"
)

// A layout is the compiled form of a server's format string: values with text between them.
type layout struct {
	name   string // for people
	form   string // the string, for errors
	before string // the text before the first value
	parts  []part
	least  int // every line has at least this many of the parts
	names  naming
	labels []string // the names of the parts
}

// A part is one value of a line and the text after it.
type part struct {
	trait
	directive string // as in the format string, for errors
	name      string // for naming and Record.Field, or ""
	time      string // a layout of package time, if the value is a time in another form
	after     string
	quoted    bool // in quotation marks; other quotation marks in the value are escaped
	greedy    bool // the value ends at the last occurrence of after that precedes the end of the time
	skip      int  // how often after occurs in the value
}

func (l *layout) text(s string) {
	if n := len(l.parts); n > 0 {
		l.parts[n-1].after += s
	} else {
		l.before += s
	}
}

// add adds a value. It joins an address and the port after it to one value, because IPv6 addresses contain colons.
func (l *layout) add(p part) {
	p.trait = traits[p.name]
	p.list, p.path = slices.Contains(lists, p.name), slices.Contains(paths, p.name)
	if n := len(l.parts); n > 0 && strings.HasSuffix(p.name, "_port") {
		before := &l.parts[n-1]
		if before.after == ":" && slices.Contains(fields[addresses].names, before.name) {
			before.directive, before.after, before.port = before.directive+":"+p.directive, "", true
			return
		}
	}
	l.parts = append(l.parts, p)
}

func (l *layout) build() error {
	previous := l.before
	for i := range l.parts {
		p := &l.parts[i]
		last := i == len(l.parts)-1
		if p.after == "" && !last && !l.parts[i+1].path {
			return fmt.Errorf("nothing separates %s from %s, so a line cannot be divided there", p.directive, l.parts[i+1].directive)
		}
		if p.time != "" {
			p.sample = time.Unix(0, 0).UTC().Format(p.time)
		}
		p.quoted = strings.HasSuffix(previous, `"`) && strings.HasPrefix(p.after, `"`)
		if !p.quoted && p.after != "" {
			p.skip = strings.Count(p.sample, p.after)
		}
		if !p.quoted && p.sample == anyText && strings.HasPrefix(p.after, " ") && strings.TrimSpace(p.after) == "" {
			return fmt.Errorf("%s may contain spaces, and a space follows it: without quotation marks its end cannot be found", p.directive)
		}
		p.greedy = p.name == "remote_user" && !last && strings.HasSuffix(l.parts[i+1].name, "time_local")
		previous = p.after
		l.labels = append(l.labels, p.name)
	}
	if names, _ := newNaming(nil); len(names.within(l.labels)[times]) == 0 {
		return errors.New("it has no time of the request")
	}
	return nil
}

func (l *layout) bound(names naming) *layout {
	own := *l
	own.names = names.within(l.labels)
	return &own
}

func (l *layout) split(line string) (row, error) {
	text, ok := strings.CutPrefix(line, l.before)
	if !ok {
		return row{}, fmt.Errorf("it does not begin with %q", l.before)
	}
	values := make([]string, 0, len(l.parts))
	for i := range l.parts {
		if text == "" && i >= l.least {
			break
		}
		value, rest, err := l.cut(i, text)
		if err == nil && l.parts[i].is != nil && !l.parts[i].is(value) {
			err = fmt.Errorf("%s cannot be %q", l.parts[i].directive, first(value, shownText))
		}
		switch {
		case err != nil && i < l.least:
			return row{l.labels, values, l}, err // as far as it goes
		case err != nil:
			return row{l.labels, values, l}, nil //nolint:nilerr // the remaining text is something else
		}
		values, text = append(values, unescaped(value)), rest
	}
	return row{l.labels, values, l}, nil
}

func (l *layout) cut(i int, text string) (value, rest string, err error) {
	p, last := &l.parts[i], i == len(l.parts)-1
	if p.padded {
		text = strings.TrimLeft(text, " ")
	}
	var end int
	switch {
	case p.quoted:
		end = closing(text)
		isWhole := end >= 0 && strings.HasPrefix(text[end:], p.after)
		if end < 0 || !isWhole && i < l.least {
			return "", "", fmt.Errorf("%s does not end with %q", p.directive, p.after)
		}
		if !isWhole {
			return text[:end], "", nil
		}
	case p.after == "" && last:
		end = len(text)
	case p.after == "": // a path follows
		if end = strings.IndexByte(text, '/'); end < 0 {
			end = len(text)
		}
	case p.greedy:
		until := max(0, strings.Index(text, l.parts[i+1].after))
		end = strings.LastIndex(text[:until], p.after)
	default:
		end = p.end(text)
	}
	switch {
	case end >= 0:
		value, rest = text[:end], text[end+len(p.after):]
	case i+1 < l.least || l.least == len(l.parts):
		return "", "", fmt.Errorf("%q is missing behind %s", p.after, p.directive)
	default: // the line ends with this value
		value, _, _ = strings.Cut(text, " ")
	}
	if word, _, more := strings.Cut(value, " "); more && i >= l.least && !p.quoted { // something else follows
		value, rest = word, ""
	}
	if colon := strings.LastIndexByte(value, ':'); p.port && colon > 0 {
		value = value[:colon]
	}
	if p.time != "" {
		at, err := time.Parse(p.time, value)
		if err != nil {
			return "", "", errTime
		}
		value = at.Format(time.RFC3339Nano)
	}
	return value, rest, nil
}

func (p *part) end(text string) int {
	from := 0
	for skip := p.skip; ; skip-- {
		end := strings.Index(text[from:], p.after)
		if end < 0 {
			return -1
		}
		end += from
		isList := p.list && strings.HasSuffix(text[:end], ",")
		if !isList && (skip <= 0 || text[:end] == "-") {
			return end
		}
		from = end + len(p.after)
	}
}

// layouts parse lines with the first of several layouts that fits.
type layouts []*layout

func (all layouts) parse(line []byte, r *Record) error {
	text := string(line)
	var wrong error
	for _, l := range all {
		values, err := l.split(text)
		if err == nil {
			r.leads = l.labels[0] == "http_x_forwarded_for"
			return l.names.fill(r, values)
		}
		wrong = err
	}
	if len(all) > 1 {
		return fmt.Errorf("not of the form %s", all[0].form)
	}
	return wrong
}

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

// unescaped decodes the escapes that Apache, nginx and JSON use for quotation marks and control characters.
func unescaped(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b []byte
	for s != "" {
		c, isRune, rest, err := strconv.UnquoteChar(s, 0)
		switch {
		case s[0] != '\\':
			b, s = append(b, s[0]), s[1:]
		case err != nil && len(s) > 1 && s[1] != 'x' && s[1] != 'u': // JSON's \/
			b, s = append(b, s[1]), s[2:]
		case err != nil:
			b, s = append(b, s[0]), s[1:]
		case isRune:
			b, s = utf8.AppendRune(b, c), rest
		default:
			b, s = append(b, byte(c)), rest
		}
	}
	return string(b)
}

func first(s string, n int) string { return s[:min(len(s), n)] }

// clients finds the client of a request that came through proxies, by the rules of httplimit.
type clients struct {
	trusting     bool
	forwardedFor *httplimit.ClientAddress
	request      http.Request

	peers     map[string]int64 // records by peer, if the peer forwards for another client and is not trusted
	forwarded int64            // records with a list
	unknown   int64            // records for which only the list names the client, because the peer is missing or in the list
}

func newClients(trusted []netip.Prefix) (*clients, error) {
	c := &clients{trusting: len(trusted) > 0, peers: make(map[string]int64), request: http.Request{Header: make(http.Header)}}
	if !c.trusting { // for lines without a peer: trust every address
		trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	var err error
	c.forwardedFor, err = httplimit.NewClientAddress(&httplimit.AddressOptions{Header: "X-Forwarded-For", Trusted: trusted, TrustUnix: true})
	if err != nil {
		return nil, fmt.Errorf("trusted proxies: %w", err)
	}
	return c, nil
}

func (c *clients) find(r *Record) {
	if r.ForwardedFor == "" {
		return
	}
	c.forwarded++
	at, hidden := r.RemoteAddress, r.RemoteAddress == "" || r.leads
	if hidden {
		c.unknown++
	}
	switch {
	case c.trusting:
		at = c.walk(at, r.ForwardedFor)
		fallthrough
	case !hidden:
		if at != "" && at == r.RemoteAddress && another(at, r.ForwardedFor) {
			c.peers[strings.Clone(at)]++ // a copy, so that the line is not kept in memory
		}
	default:
		at = c.walk("", r.ForwardedFor)
	}
	if at != "" {
		r.RemoteAddress = at
	}
}

// another reports whether a list names a client other than the peer. If the peer is the last of several addresses,
// the server itself added it as a proxy. If it is earlier, the server took it from the list: it is the client.
func another(peer, list string) bool {
	all := strings.Split(list, ",")
	i := slices.IndexFunc(all, func(one string) bool { return withoutPort(strings.TrimSpace(one)) == peer })
	return i < 0 || i > 0 && i == len(all)-1
}

// walk returns the client behind a peer. An empty peer counts as a trusted proxy. It returns "" if the client is unknown.
func (c *clients) walk(peer, list string) string {
	c.request.RemoteAddr, c.request.Header["X-Forwarded-For"] = peer, []string{list}
	address, err := c.forwardedFor.Addr(&c.request)
	if err != nil { // a name instead of an address, or nothing usable
		return ""
	}
	return address.String()
}

func (c *clients) describe(s *Stats) {
	switch {
	case s.Records == 0:
	case c.trusting:
		s.Client = "X-Forwarded-For, the last one that is no trusted proxy"
	case c.unknown > 0:
		s.Client = "X-Forwarded-For, the first one"
		s.Notes = append(s.Notes, "The client is the first of the forwarded addresses, which a client can invent: name your proxies with --trusted-proxies.")
	}
	if c.trusting && c.forwarded == 0 && s.Records > 0 {
		s.Notes = append(s.Notes, "No line has forwarded addresses, so --trusted-proxies changes nothing. If they are in a field with an unusual name, name it with forwarded_for=NAME.")
	}
	s.Peers = c.peers
}
