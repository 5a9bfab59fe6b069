package accesslog

import (
	"bytes"
	"errors"
	"strings"
)

// A wrapping is what a program that carries logs writes around each line of another program.
type wrapping struct {
	name string // for people
	// outermost means that the program writes files of its own, which nothing wraps.
	outermost bool
	new       func() wrapper
}

// A wrapper takes a wrapping off.
type wrapper interface {
	// unwrap returns what is wrapped. The error is errWrapping for a line without the wrapping.
	unwrap(line []byte) ([]byte, error)
}

var errWrapping = errors.New("not wrapped as the other lines are")

// mostWrappings is how deep wrappings nest: journald around compose around a time around syslog.
const mostWrappings = 4

var wrappings = []wrapping{
	{"CRI (containerd, CRI-O)", true, func() wrapper { return stateless(cri) }},
	{"Docker's JSON", true, func() wrapper { return jsonWrapper{key: "log"} }},
	{"journald's JSON", true, func() wrapper { return jsonWrapper{key: "MESSAGE", with: "__REALTIME_TIMESTAMP"} }},
	{"syslog (RFC 5424)", false, func() wrapper { return stateless(syslogRFC5424) }},
	{"syslog (RFC 3164)", false, func() wrapper { return stateless(syslogRFC3164) }},
	{"names of containers (compose)", false, func() wrapper { return stateless(compose) }},
	{"names of pods (kubectl --prefix)", false, func() wrapper { return stateless(kubectl) }},
	{"a time before each line", false, func() wrapper { return stateless(timeBefore) }},
}

// stateless is a wrapper that looks at one line only.
type stateless func([]byte) ([]byte, bool)

func (s stateless) unwrap(line []byte) ([]byte, error) {
	if inner, ok := s(line); ok {
		return inner, nil
	}
	return nil, errWrapping
}

// compose takes off "web-1  | ", also where a terminal would colour it.
func compose(line []byte) ([]byte, bool) {
	name, rest, ok := bytes.Cut(uncoloured(line), []byte("|"))
	if !ok || len(name) > 200 {
		return nil, false
	}
	trimmed := bytes.TrimRight(name, " ")
	if len(trimmed) == 0 || len(trimmed) == len(name) || bytes.ContainsFunc(trimmed, func(r rune) bool { return !nameRune(r) }) {
		return nil, false
	}
	return uncoloured(bytes.TrimPrefix(rest, []byte(" "))), true
}

// uncoloured takes a sequence that changes the colour off the front.
func uncoloured(line []byte) []byte {
	if !bytes.HasPrefix(line, []byte("\x1b[")) {
		return line
	}
	if end := bytes.IndexByte(line, 'm'); end >= 0 && end < 12 {
		return line[end+1:]
	}
	return line
}

func nameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/", r)
}

// kubectl takes off "[pod/web-5d8f/nginx] ".
func kubectl(line []byte) ([]byte, bool) {
	name, rest, ok := bytes.Cut(line, []byte("] "))
	if !ok || !bytes.HasPrefix(name, []byte("[pod/")) || bytes.IndexByte(name, ' ') >= 0 {
		return nil, false
	}
	return rest, true
}

// timeBefore takes off the time that docker logs -t and kubectl logs --timestamps write.
func timeBefore(line []byte) ([]byte, bool) {
	at, rest, ok := bytes.Cut(line, []byte(" "))
	return rest, ok && isRFC3339(at)
}

// isRFC3339 reports whether a text has the form of a time such as 2026-11-21T22:00:00.123Z, without checking its numbers.
func isRFC3339(s []byte) bool {
	if len(s) < 20 || len(s) > 40 {
		return false
	}
	for i, form := range []byte("dddd-dd-ddTdd:dd:dd") {
		if c := s[i]; form == 'd' && (c < '0' || c > '9') || form != 'd' && c != form {
			return false
		}
	}
	zone := bytes.TrimLeft(s[19:], ".,0123456789")
	return len(zone) == 1 && zone[0] == 'Z' || len(zone) >= 5 && (zone[0] == '+' || zone[0] == '-')
}
