package accesslog

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// errShape describes a line of the common and combined format.
var errShape = errors.New(`not of the form ADDRESS - USER [TIME] "REQUEST" STATUS BYTES`)

// parseCombined parses a line of the common or combined format. It ignores everything after the user agent.
func parseCombined(line string, r *Record) error {
	var ok bool
	if r.RemoteAddress, line, ok = strings.Cut(line, " "); !ok || r.RemoteAddress == "" {
		return errShape
	}
	ident, line, ok := strings.Cut(line, " ")
	if !ok {
		return errShape
	}
	if isAddress(ident) { // Apache's vhost_combined has the host before the address
		r.Host, r.RemoteAddress = r.RemoteAddress, ident
		if name, port, ok := strings.Cut(r.Host, ":"); ok && port != "" {
			r.Host = name
		}
		if _, line, ok = strings.Cut(line, " "); !ok {
			return errShape
		}
	}
	// The name of a user may contain spaces.
	user, line, ok := strings.Cut(line, " [")
	if !ok {
		return errShape
	}
	r.User = dash(user)
	at, line, ok := strings.Cut(line, "] ")
	if !ok {
		return errShape
	}
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
	if r.Status, err = parseStatus(status); err != nil {
		return err
	}
	size, line, _ := strings.Cut(line, " ")
	if r.Bytes, err = parseSize(size); err != nil {
		return err
	}
	if r.Referer, line, ok = quoted(line); ok {
		r.Referer = dash(r.Referer)
		agent, _, _ := quoted(strings.TrimPrefix(line, " "))
		r.UserAgent = dash(agent)
	}
	return nil
}

func isAddress(s string) bool {
	if s == "-" { // as in nearly all lines
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
			return strings.ReplaceAll(line[1:i], `\"`, `"`), line[i+1:], true
		}
	}
	return "", line, false
}

func parseStatus(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if s == "-" {
		return 0, nil
	}
	if err != nil || n < 0 || n > 999 {
		return 0, errors.New("the status is not a number of three digits")
	}
	return n, nil
}

func parseSize(s string) (int64, error) {
	if s == "-" || s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("the size in bytes is not a number")
	}
	return n, nil
}
