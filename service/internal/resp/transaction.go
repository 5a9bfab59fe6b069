package resp

import (
	"bytes"
	"context"

	"example.com/sash/service/internal/wire"
)

// mostQueued bounds the bytes of the commands between MULTI and EXEC. Each argument counts with its overhead of argumentHas bytes.
const (
	mostQueued  = 256 << 10
	argumentHas = 24
)

// A transaction is the commands between MULTI and EXEC. EXEC answers them one after the other, like a pipeline.
type transaction struct {
	open   bool
	wrong  bool // a command could not be queued, so EXEC answers none
	queued [][][]byte
	due    [][][]byte // what EXEC has begun to answer
	taken  int64      // bytes of the connection's share, until all are answered
}

// enqueue keeps a command for EXEC, unless err says what is wrong with it. The error ends the connection.
func (c *conn) enqueue(args [][]byte, err error) error {
	m, size := &c.session.multi, argumentHas
	kept := make([][]byte, len(args)) // the connection reuses its buffer
	for i, arg := range args {
		kept[i] = bytes.Clone(arg)
		size += argumentHas + len(arg)
	}
	if err == nil && m.taken+int64(size) > mostQueued {
		err = wrong("the commands behind MULTI are too long together: send fewer before EXEC")
	}
	if err != nil {
		m.wrong = true
		c.handler.opts.Stats.Invalid()
		c.out.fail(c.handler.refusal(err, &wire.Undecided))
		return nil
	}
	if err = c.take(size); err == nil {
		m.queued, m.taken = append(m.queued, kept), m.taken+int64(size)
		c.out.status("QUEUED")
	}
	return err
}

func multi(_ context.Context, c *conn, _ [][]byte) error {
	if c.session.multi.open {
		return wrong("MULTI calls can not be nested")
	}
	c.session.multi.open = true
	return c.ok(nil)
}

// leaveMulti ends the transaction and returns it. Without MULTI, the transaction is not open.
func (c *conn) leaveMulti() transaction {
	m := c.session.multi
	c.held.Give(c.party, m.taken)
	c.session.multi = transaction{}
	return m
}

func exec(_ context.Context, c *conn, _ [][]byte) error {
	m := &c.session.multi
	switch {
	case !m.open:
		return wrong("EXEC without MULTI")
	case m.wrong:
		c.leaveMulti()
		return &refusal{"EXECABORT", "Transaction discarded because of previous errors."}
	}
	c.out.list('*', int64(len(m.queued)))
	m.open, m.due, m.queued = false, m.queued, nil
	return nil
}

func discard(_ context.Context, c *conn, _ [][]byte) error {
	if !c.leaveMulti().open {
		return wrong("DISCARD without MULTI")
	}
	return c.ok(nil)
}

func watch(context.Context, *conn, [][]byte) error {
	return wrong("WATCH is not here: no key can be read, so nothing can depend on one; every command decides by itself")
}
