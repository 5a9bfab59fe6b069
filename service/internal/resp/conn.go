package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"example.com/sash/service/internal/conns"
)

// Bytes that a connection holds.
const (
	firstBuffer = 4 << 10  // for commands that come; it grows up to maxCommand, and shrinks when it is empty
	mostReplies = 32 << 10 // that wait for the end of a pipeline before they are sent
)

// A conn is one connection. One goroutine serves it.
type conn struct {
	*serving
	known   *conns.Conn
	net     net.Conn // known, or TLS over it
	session session

	buf   []byte // what has come and is not answered
	wrong error  // what follows buf cannot be read
	out   reply
}

// run answers what comes until the connection ends.
func (c *conn) run(ctx context.Context) {
	for {
		cmds, rest, err := c.next()
		if wrong, ok := errors.AsType[mistake](err); ok {
			c.handler.invalid()
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

// next returns commands that have come whole, at least one, and what came behind them. They are valid until keep. It
// returns no more than are decided together: in memory a short command is forty times as long as what was sent.
func (c *conn) next() (cmds [][][]byte, rest []byte, err error) {
	var began time.Time
	for {
		rest = c.buf
		for c.wrong == nil && len(cmds) < mostTogether {
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

// keep makes rest, which is the end of the buffer, all that is in it.
func (c *conn) keep(rest []byte) {
	if len(rest) == 0 && cap(c.buf) > firstBuffer {
		c.buf = nil
		return
	}
	c.buf = c.buf[:copy(c.buf, rest)]
}

// fill reads what has come, behind what is in the buffer.
func (c *conn) fill(deadline time.Time) error {
	if len(c.buf) == cap(c.buf) {
		// A command that has not come whole is shorter than maxCommand, or rejected.
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

// flush sends the replies.
func (c *conn) flush() error {
	if len(c.out.b) == 0 {
		return nil
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(cmp.Or(c.taking, writeTime))); err != nil {
		return err
	}
	_, err := c.net.Write(c.out.b)
	if c.out.b = c.out.b[:0]; cap(c.out.b) > 2*mostReplies {
		c.out.b = nil
	}
	return err
}

// safely answers a command, and answers ERR if that panics.
func (c *conn) safely(out *reply, f func(*reply)) {
	before := len(out.b)
	defer func() {
		if p := recover(); p != nil {
			c.Log.Error("answering a command panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if c.Panicked != nil {
				c.Panicked()
			}
			out.b = out.b[:before]
			out.fail(wrong("internal error: the service has a bug, and logged it"))
		}
	}()
	f(out)
}
