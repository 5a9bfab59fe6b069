package resp

import (
	"bytes"
	"fmt"
)

// Bounds of a command. A subject has 32 entries at most, and the token of a reservation 8 KiB.
const (
	maxCommand = 16 << 10 // bytes
	maxArgs    = 256
	maxHeader  = 16 // bytes of the line before a command or an argument
)

// A mistake in the protocol ends a connection: what follows cannot be read.
type mistake string

// Error says what is wrong, in the words of Redis.
func (m mistake) Error() string { return "Protocol error: " + string(m) }

// frame returns the command that b begins with, and its length: 0 if it has not come whole. A command without arguments,
// such as an empty line, is empty. The arguments lie in b. The error is a mistake.
func frame(b []byte) (args [][]byte, n int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	if b[0] != '*' {
		return frameLine(b)
	}
	count, at, err := header(b, 0, maxArgs, "multibulk")
	if at == 0 {
		return nil, 0, err
	}
	for range count {
		if at == len(b) {
			return nil, 0, nil
		}
		if b[at] != '$' {
			return nil, 0, mistake(fmt.Sprintf("expected '$', got %q", b[at]))
		}
		size, begin, err := header(b, at, maxCommand, "bulk")
		if begin == 0 {
			return nil, 0, err
		}
		at = begin + size + 2
		switch {
		case at > maxCommand:
			return nil, 0, mistake(fmt.Sprintf("a command has more than %d bytes", maxCommand))
		case at > len(b):
			return nil, 0, nil
		case b[at-2] != '\r' || b[at-1] != '\n':
			return nil, 0, mistake("an argument is longer than its length says")
		}
		args = append(args, b[begin:begin+size])
	}
	return args, at, nil
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
			return 0, 0, mistake("invalid " + of + " length")
		}
	}
	switch {
	case !whole && len(b) < at+maxHeader:
		return 0, 0, nil
	case !whole || len(line) == 1 || n > most:
		return 0, 0, mistake("invalid " + of + " length")
	}
	return n, at + len(line) + 2, nil
}

// frameLine is frame for a command without lengths. Health checks of load balancers send PING so. No other command comes
// this way, because a page in a browser can have lines sent to any port.
func frameLine(b []byte) (args [][]byte, n int, err error) {
	line, _, whole := bytes.Cut(b[:min(len(b), maxHeader)], []byte("\n"))
	if !whole && len(b) < maxHeader {
		return nil, 0, nil
	}
	word := bytes.TrimSuffix(line, []byte("\r"))
	switch name := string(bytes.ToUpper(word)); {
	case whole && name == "":
		return nil, len(line) + 1, nil
	case whole && (name == "PING" || name == "QUIT"):
		return [][]byte{word}, len(line) + 1, nil
	}
	return nil, 0, mistake("send commands as arrays of bulk strings, as every client of Redis does")
}
