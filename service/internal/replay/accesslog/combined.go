package accesslog

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// errShape describes a line of the common and combined format.
var errShape = errors.New(`not of the form ADDRESS - USER [TIME] "REQUEST" STATUS BYTES`)

// parseCombined parses a line of the common or combined format, and those that servers and people make of it: after a host
// (Apache's vhost_combined), after X-Forwarded-For, or before it (the main format of nginx's packages), and Traefik's.
// It ignores anything else behind the user agent.
func parseCombined(line string, r *Record) error {
	line, ok := r.lead(line)
	if !ok {
		return errShape
	}
	// The name of a user may contain anything but a quotation mark, and is the client's own choice.
	end := strings.Index(line, `] "`)
	begin := strings.LastIndex(line[:max(end, 0)], " [")
	if begin < 0 {
		return errShape
	}
	user, at, line := line[:begin], line[begin+len(" ["):end], line[end+len("] "):]
	r.User = dash(user)
	var err error
	if r.Time, err = parseTime(at); err != nil {
		return err
	}
	request, line, ok := quoted(line)
	if !ok {
		return errShape
	}
	r.request(request)
	status, line, _ := strings.Cut(strings.TrimPrefix(line, " "), " ")
	if status == "" {
		return errStatus
	}
	if err = r.setStatus(status); err != nil {
		return err
	}
	size, line, _ := strings.Cut(line, " ")
	if err = r.setBytes(size); err != nil {
		return err
	}
	if r.Referer, line, ok = quoted(line); ok {
		r.Referer = dash(r.Referer)
		agent, rest, _ := quoted(strings.TrimPrefix(line, " "))
		r.UserAgent = dash(agent)
		if rest != "" {
			r.trail(rest)
		}
	}
	return nil
}

// lead reads what is before the user: "ADDRESS - " or "HOST:PORT ADDRESS - ", or a list of forwarded addresses before or
// instead of the address. It returns the rest of the line.
func (r *Record) lead(line string) (rest string, ok bool) {
	if strings.HasPrefix(line, `"`) {
		if r.ForwardedFor, line, ok = quoted(line); !ok {
			return "", false
		}
		return r.behindForwarded(strings.TrimPrefix(line, " "))
	}
	first, line, ok := strings.Cut(line, " ")
	if !ok || first == "" {
		return "", false
	}
	if first[len(first)-1] == ',' {
		for list := first; ; {
			var next string
			if next, line, ok = strings.Cut(line, " "); !ok {
				return "", false
			}
			if list += " " + next; !strings.HasSuffix(next, ",") {
				r.ForwardedFor = list
				return r.behindForwarded(line)
			}
		}
	}
	ident, rest, ok := strings.Cut(line, " ")
	if !ok {
		return "", false
	}
	switch {
	case !isAddress(ident):
		r.RemoteAddress = dash(withoutPort(first)) // none where X-Forwarded-For stands in its place and is empty
		return rest, true
	case first == "-" || isAddress(first):
		r.ForwardedFor = first
		return r.behindForwarded(line)
	}
	r.Host, r.RemoteAddress = first, ident
	if name, port, ok := strings.Cut(r.Host, ":"); ok && port != "" {
		r.Host = name
	}
	_, rest, ok = strings.Cut(rest, " ")
	return rest, ok
}

// behindForwarded reads "ADDRESS - " or "- " behind the forwarded addresses.
func (r *Record) behindForwarded(line string) (rest string, ok bool) {
	r.ForwardedFor, r.leads = dash(r.ForwardedFor), true
	peer, rest, ok := strings.Cut(line, " ")
	if !ok || !isAddress(peer) {
		return rest, ok
	}
	r.RemoteAddress = peer
	_, rest, ok = strings.Cut(rest, " ")
	return rest, ok
}

// trail reads what nginx's packages and Traefik write behind the user agent.
func (r *Record) trail(line string) {
	line = strings.TrimPrefix(line, " ")
	if text, _, ok := quoted(line); ok {
		if isForwarded(text) {
			r.ForwardedFor = text
		}
		return
	}
	if ms, ok := strings.CutSuffix(line, "ms"); ok {
		r.setDuration(ms[strings.LastIndexByte(ms, ' ')+1:])
	}
}

// isForwarded reports whether a text is a list of addresses. The first one is a client's own claim and may be anything.
func isForwarded(text string) bool {
	last := text[strings.LastIndexByte(text, ',')+1:]
	return isAddress(withoutPort(strings.Trim(last, " ")))
}

func isAddress(s string) bool {
	if s == "-" || s == "" { // as in nearly all lines
		return false
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

// quoted takes a quoted string from the front of a line. A backslash escapes a quote.
func quoted(line string) (text, rest string, ok bool) {
	if line == "" || line[0] != '"' {
		return "", line, false
	}
	for i := 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return unescaped(line[1:i]), line[i+1:], true
		}
	}
	return "", line, false
}

var errStatus = errors.New("the status is not a number of three digits")

func parseStatus(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 999 {
		return 0, errStatus
	}
	return n, nil
}

func parseSize(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("the size in bytes is not a number")
	}
	return n, nil
}
