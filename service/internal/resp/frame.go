package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// Bounds of a command. A subject has 32 entries at most, and the token of a reservation 8 KiB.
const (
	maxCommand = 16 << 10 // bytes
	maxArgs    = 256
	maxHeader  = 16 // bytes of the line before a command or an argument
)

// A protocolError ends a connection: what follows cannot be read.
type protocolError string

// Error says what is wrong, in the words of Redis.
func (e protocolError) Error() string { return "Protocol error: " + string(e) }

var errInline = protocolError("send commands as arrays of bulk strings, as every client of Redis does")

// frame returns the length of the command that b begins with, or 0 if it has not come whole. An error is a protocolError.
// The parser of redcon gets what frame returns and nothing else: by itself it takes negative lengths, and lengths of
// more digits than an int has, and ends the process.
func frame(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	if b[0] != '*' {
		return frameLine(b)
	}
	args, at, err := header(b, 0, maxArgs, "multibulk")
	if at == 0 {
		return 0, err
	}
	for range args {
		if at == len(b) {
			return 0, nil
		}
		if b[at] != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, next, err := header(b, at, maxCommand, "bulk")
		if next == 0 {
			return 0, err
		}
		at = next + size + 2
		switch {
		case at > maxCommand:
			return 0, protocolError(fmt.Sprintf("a command has more than %d bytes", maxCommand))
		case at > len(b):
			return 0, nil
		case b[at-2] != '\r' || b[at-1] != '\n':
			return 0, protocolError("an argument is longer than its length says")
		}
	}
	return at, nil
}

// header reads the line with a number that begins at b[at], and returns where the next one begins: 0 if it has not come
// whole, and after an error.
func header(b []byte, at, most int, of string) (n, next int, err error) {
	line, _, whole := bytes.Cut(b[at:min(len(b), at+maxHeader)], []byte("\r\n"))
	for i, c := range line[1:] {
		switch {
		case '0' <= c && c <= '9':
			n = n*10 + int(c-'0')
		case c != '\r' || whole || i != len(line)-2:
			return 0, 0, protocolError("invalid " + of + " length")
		}
	}
	switch {
	case !whole && len(b) < at+maxHeader:
		return 0, 0, nil
	case !whole || len(line) == 1 || n > most:
		return 0, 0, protocolError("invalid " + of + " length")
	}
	return n, at + len(line) + 2, nil
}

// frameLine is frame for a command without lengths. Health checks of load balancers send PING so. No other command comes
// this way, because a page in a browser can have lines sent to any port.
func frameLine(b []byte) (n int, err error) {
	line, _, whole := bytes.Cut(b[:min(len(b), maxHeader)], []byte("\n"))
	if !whole && len(b) < maxHeader {
		return 0, nil
	}
	switch string(bytes.ToUpper(bytes.TrimSuffix(line, []byte("\r")))) {
	case "", "PING", "QUIT":
		if whole {
			return len(line) + 1, nil
		}
	}
	return 0, errInline
}

// asProtocolError returns an error of frame, if it is one.
func asProtocolError(err error) (wrong protocolError, ok bool) {
	ok = errors.As(err, &wrong)
	return wrong, ok
}
