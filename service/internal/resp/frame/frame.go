// Package frame reads the commands of RESP, within bounds. It is apart from package resp so that its fuzz test is small.
package frame

import (
	"bytes"
	"fmt"

	"github.com/tidwall/redcon"
)

// Bounds of a command. A subject has 32 entries at most, and the token of a reservation 8 KiB.
const (
	MaxCommand = 16 << 10 // bytes
	maxArgs    = 256
	maxHeader  = 16 // bytes of the line before a command or an argument
)

// An Error is a mistake in the protocol, which ends a connection: what follows cannot be read.
type Error string

// Error says what is wrong, in the words of Redis.
func (e Error) Error() string { return "Protocol error: " + string(e) }

// Next returns the command that b begins with, and its length: 0 if it has not come whole. A command without arguments,
// such as an empty line, is nil. The arguments lie in b. The error is an Error.
func Next(b []byte) (args [][]byte, n int, err error) {
	if n, err = frame(b); n == 0 {
		return nil, 0, err
	}
	_, args, _, _, err = redcon.ReadNextCommand(b[:n], make([][]byte, 0, 8))
	if err != nil { // frame lets nothing through that redcon does not take
		return nil, 0, Error(err.Error())
	}
	return args, n, nil
}

var errInline = Error("send commands as arrays of bulk strings, as every client of Redis does")

// frame returns the length of the command that b begins with, or 0 if it has not come whole. An error is an Error.
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
			return 0, Error(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, next, err := header(b, at, MaxCommand, "bulk")
		if next == 0 {
			return 0, err
		}
		at = next + size + 2
		switch {
		case at > MaxCommand:
			return 0, Error(fmt.Sprintf("a command has more than %d bytes", MaxCommand))
		case at > len(b):
			return 0, nil
		case b[at-2] != '\r' || b[at-1] != '\n':
			return 0, Error("an argument is longer than its length says")
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
			return 0, 0, Error("invalid " + of + " length")
		}
	}
	switch {
	case !whole && len(b) < at+maxHeader:
		return 0, 0, nil
	case !whole || len(line) == 1 || n > most:
		return 0, 0, Error("invalid " + of + " length")
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
