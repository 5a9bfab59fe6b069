package accesslog

import (
	"bytes"
	"strings"
)

// syslogRFC5424 takes off "<PRI>1 TIME HOST APP PROCID MSGID [DATA] ". Files often lack the priority.
func syslogRFC5424(line []byte) ([]byte, bool) {
	line, ok := bytes.CutPrefix(priority(line), []byte("1 "))
	if !ok {
		return nil, false
	}
	for i := range 5 { // time, host, application, process, message
		var part []byte
		if part, line, ok = bytes.Cut(line, []byte(" ")); !ok || len(part) == 0 || i == 0 && !isRFC3339(part) && string(part) != "-" {
			return nil, false
		}
	}
	if line, ok = structuredData(line); !ok {
		return nil, false
	}
	return bytes.TrimPrefix(bytes.TrimPrefix(line, []byte(" ")), []byte(byteOrderMark)), true
}

// structuredData takes off "-" or the elements in brackets.
func structuredData(line []byte) ([]byte, bool) {
	if rest, ok := bytes.CutPrefix(line, []byte("-")); ok {
		return rest, true
	}
	found := false
	for len(line) > 0 && line[0] == '[' {
		end, quoted := 0, false
	element:
		for i := 1; i < len(line); i++ {
			switch line[i] {
			case '\\':
				i++
			case '"':
				quoted = !quoted
			case ']':
				if !quoted {
					end = i
					break element
				}
			}
		}
		if end == 0 {
			return nil, false
		}
		line, found = line[end+1:], true
	}
	return line, found
}

// syslogRFC3164 takes off "<PRI>Nov 21 22:00:00 HOST TAG[PID]: ". The time may also be one of RFC 3339, as newer daemons
// and journalctl write it, the host may be missing, as in what HAProxy writes to its standard output, and so may the tag.
func syslogRFC3164(line []byte) ([]byte, bool) {
	line, ok := syslogTime(priority(line))
	if !ok {
		return nil, false
	}
	host, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(host) == 0 {
		return nil, false
	}
	if isTag(host) {
		return rest, true
	}
	if tag, message, ok := bytes.Cut(rest, []byte(" ")); ok && isTag(tag) {
		return message, true
	}
	return rest, true
}

// priority takes off "<134>", also behind the length of the message that a stream has before it.
func priority(line []byte) []byte {
	if length, rest, ok := bytes.Cut(line[:min(len(line), 8)], []byte(" <")); ok && len(length) > 0 && len(rest) > 0 && allDigits(string(length)) {
		line = line[len(length)+1:]
	}
	if len(line) < 3 || line[0] != '<' {
		return line
	}
	end := bytes.IndexByte(line[:min(len(line), 5)], '>')
	if end < 2 || !allDigits(string(line[1:end])) {
		return line
	}
	return line[end+1:]
}

const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec "

func syslogTime(line []byte) ([]byte, bool) {
	if at, rest, ok := bytes.Cut(line, []byte(" ")); ok && isRFC3339(at) {
		return rest, true
	}
	if len(line) < 16 || line[15] != ' ' || line[6] != ' ' || line[9] != ':' || line[12] != ':' || !strings.Contains(months, string(line[:4])) {
		return nil, false
	}
	return line[16:], true
}

// isTag reports whether a text is a program's name, perhaps with its process, and a colon.
func isTag(text []byte) bool {
	name, ok := bytes.CutSuffix(text, []byte(":"))
	if !ok || len(name) == 0 {
		return false
	}
	if i := bytes.IndexByte(name, '['); i > 0 && name[len(name)-1] == ']' {
		name = name[:i]
	}
	return !bytes.ContainsAny(name, "[]\":,")
}
