package httplimit

import (
	"net/netip"
	"strings"
)

// The header Forwarded is read from the right, like X-Forwarded-For. Read from the left, an unclosed quotation
// mark of the client would swallow what the proxies appended.

// lastElement cuts the last element off a line of Forwarded. Commas within quotes do not separate. It is
// not ok when a quote is closed but not opened.
func lastElement(line string) (rest, element string, more, ok bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case '"':
			if !quoted || !escaped(line, i) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return line[:i], line[i+1:], true, true
			}
		}
	}
	return "", line, false, !quoted
}

// escaped reports whether an odd number of backslashes stands before s[i].
func escaped(s string, i int) bool {
	n := 0
	for i--; i >= 0 && s[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// forwardedFor returns the address of the element's only parameter "for". It is not ok for "unknown",
// obfuscated names, and malformed elements.
func forwardedFor(element string) (addr netip.Addr, ok bool) {
	found := false
	for rest := element; rest != ""; {
		name, after, is := strings.Cut(rest, "=")
		name = strings.Trim(name, " \t")
		if !is || !token(name) {
			return netip.Addr{}, false
		}
		value, after, is := value(after)
		if !is {
			return netip.Addr{}, false
		}
		after = strings.TrimLeft(after, " \t")
		if after != "" {
			if after[0] != ';' || strings.Trim(after[1:], " \t") == "" {
				return netip.Addr{}, false
			}
			after = after[1:]
		}
		rest = after
		if !strings.EqualFold(name, "for") {
			continue
		}
		if found {
			return netip.Addr{}, false
		}
		if addr, found = forwardedNode(value); !found {
			return netip.Addr{}, false
		}
	}
	return addr, found
}

// forwardedNode reads a node: IPv6 has brackets, and a port is a number or hidden ("_x").
func forwardedNode(s string) (netip.Addr, bool) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.HasPrefix(s[i+1:], "_") {
		s = s[:i]
	}
	if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
		return netip.Addr{}, false
	}
	return parseHop(s)
}

// value reads a token or a quoted string and returns what comes after it.
func value(s string) (v, after string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		// Colons and brackets have to be quoted; addresses of proxies that do not are read all the same.
		end := 0
		for end < len(s) && (tokenByte(s[end]) || strings.IndexByte(":[]", s[end]) >= 0) {
			end++
		}
		return s[:end], s[end:], end > 0
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

func token(s string) bool {
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func tokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
