package resp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"example.com/sash/service/internal/conns"
)

// Bytes of a connection, and beyond firstBuffer of all connections, for unfinished commands and for replies that clients have not taken.
const (
	firstBuffer = 4 << 10  // for arriving commands; it grows up to maxCommand, and shrinks when it is empty
	mostReplies = 32 << 10 // that wait for the end of a pipeline before they are sent
	mostHeld    = 32 << 20 // no address holds more than it leaves free
)

// A conn is one connection. One goroutine serves it.
type conn struct {
	*serving
	known   *conns.Conn
	net     net.Conn // known, or TLS over it
	session session

	party string // the party that shares held with others
	taken int64  // bytes of held that buf takes

	buf   []byte // what has come and is not answered
	wrong error  // why what follows buf cannot be read
	out   reply
}

func (c *conn) run(ctx context.Context) {
	defer func() { c.held.Give(c.party, c.taken+c.session.multi.taken) }()
	for {
		cmds, rest, err := c.next()
		if wrong, ok := errors.AsType[mistake](err); ok {
			c.handler.opts.Stats.Invalid()
			c.out.fail(&refusal{"ERR", wrong.Error()})
			_ = c.flush()
			return
		}
		if err != nil {
			return
		}
		c.known.Begin()
		stays := c.answer(ctx, cmds)
		err = c.flush()
		c.keep(rest)
		c.known.End()
		if !stays || err != nil || c.leaving.Load() && len(rest) == 0 {
			return
		}
	}
}

// next returns the commands that have arrived whole, at least one, and the bytes behind them. They are valid until keep.
// It returns no more commands than are decided together, because a short command takes forty times its length in memory.
func (c *conn) next() (cmds [][][]byte, rest []byte, err error) {
	var began time.Time
	for {
		rest = c.buf
		for c.wrong == nil && len(cmds) < maxBatch {
			var args [][]byte
			var n int
			if args, n, c.wrong = frame(rest); n == 0 {
				break
			}
			if rest = rest[n:]; len(args) > 0 {
				cmds = append(cmds, args)
			}
		}
		if len(cmds) > 0 {
			return cmds, rest, nil
		}
		if c.wrong != nil {
			return nil, nil, c.wrong
		}
		c.keep(rest)
		deadline := time.Now().Add(idleTime)
		if len(c.buf) > 0 {
			if began.IsZero() {
				began = time.Now()
			}
			deadline = began.Add(commandTime)
		}
		if err := c.fill(deadline); err != nil {
			return nil, nil, err
		}
	}
}

// keep makes rest, the end of the buffer, its whole contents.
func (c *conn) keep(rest []byte) {
	if len(rest) == 0 && cap(c.buf) > firstBuffer {
		c.held.Give(c.party, c.taken)
		c.buf, c.taken = nil, 0
		return
	}
	c.buf = c.buf[:copy(c.buf, rest)]
}

func (c *conn) fill(deadline time.Time) error {
	if len(c.buf) == cap(c.buf) {
		// An incomplete command is shorter than maxCommand, or rejected.
		if err := c.take(len(c.buf)); err != nil {
			return err
		}
		c.taken += int64(len(c.buf))
		grown := make([]byte, len(c.buf), max(firstBuffer, 2*cap(c.buf)))
		copy(grown, c.buf)
		c.buf = grown
	}
	if err := c.net.SetReadDeadline(deadline); err != nil {
		return err
	}
	n, err := c.net.Read(c.buf[len(c.buf):cap(c.buf)])
	c.buf = c.buf[:len(c.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

// take takes bytes from the share of the connection's address. The error ends the connection.
func (c *conn) take(n int) error {
	if n == 0 || c.held.Take(c.party, int64(n)) {
		return nil
	}
	c.failed.Log(slog.LevelWarn, "an address has too much of half-sent commands and of replies not taken: its connection is closed",
		"address", c.party)
	return net.ErrClosed
}

func (c *conn) flush() error {
	if len(c.out.b) == 0 {
		return nil
	}
	if n := cap(c.out.b); n > firstBuffer {
		if err := c.take(n); err != nil {
			return err
		}
		defer c.held.Give(c.party, int64(n))
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(cmp.Or(c.writeTimeout, writeTime))); err != nil {
		return err
	}
	_, err := c.net.Write(c.out.b)
	if c.out.b = c.out.b[:0]; cap(c.out.b) > firstBuffer {
		c.out.b = nil
	}
	return err
}

// recovered is deferred while a command is answered. After a panic it answers ERR, in place of what out has beyond before bytes.
func (c *conn) recovered(out *reply, before int) {
	if p := recover(); p != nil {
		c.Log.Error("answering a command panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.handler.opts.Stats.Service.Panics.Add(1)
		out.b = out.b[:before]
		out.fail(wrong("internal error: the service has a bug, and logged it"))
	}
}

// Bounds of a command. A subject has 32 entries at most, and the token of a reservation 8 KiB.
const (
	maxCommand = 16 << 10 // bytes
	maxArgs    = 256
	maxHeader  = 16 // bytes of the line before a command or an argument
)

// A mistake is an error in the protocol. It ends the connection, because what follows cannot be read.
type mistake string

// Error returns what is wrong, in the words of Redis.
func (m mistake) Error() string { return "Protocol error: " + string(m) }

// frame returns the command at the start of b, which may be empty, and its length, or 0 if it is incomplete. The error is a mistake.
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

// header reads the number in the line at b[at], and returns where the next line begins. Next is 0 if the line is incomplete or invalid.
func header(b []byte, at, most int, of string) (n, next int, err error) {
	digits, _, whole := bytes.Cut(b[at+1:min(len(b), at+maxHeader)], []byte("\r\n"))
	rest := string(bytes.TrimLeft(digits, "0123456789"))
	if !whole && len(b) < at+maxHeader && (rest == "" || rest == "\r") {
		return 0, 0, nil
	}
	size, err := strconv.ParseUint(string(digits), 10, 32)
	if !whole || err != nil || size > uint64(most) {
		return 0, 0, mistake("invalid " + of + " length")
	}
	return int(size), at + 1 + len(digits) + 2, nil
}

// frameLine is frame for a command without lengths, such as the PING of a load balancer's health check. No other
// command comes this way, because a web page can make a browser send lines to any port.
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
