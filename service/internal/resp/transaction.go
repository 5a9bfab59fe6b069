package resp

import (
	"bytes"
	"context"

	"example.com/sash/service/internal/wire"
)

// mostQueued bounds the bytes of the commands between MULTI and EXEC, each argument with what it takes in memory.
const (
	mostQueued  = 256 << 10
	argumentHas = 24
)

// A transaction is the commands between MULTI and EXEC, which are answered together, one after the other like a pipeline.
type transaction struct {
	open   bool
	wrong  bool // a command could not be queued: EXEC answers none
	queued [][][]byte
	due    [][][]byte // what EXEC has begun to answer
	taken  int64      // of the connection's share, for queued
}

// enqueue keeps a command for EXEC, unless err says what is wrong with it. The error ends the connection.
func (c *conn) enqueue(args [][]byte, err error) error {
	size := argumentHas * (len(args) + 1)
	for _, arg := range args {
		size += len(arg)
	}
	m := &c.session.multi
	if err == nil && m.taken+int64(size) > mostQueued {
		err = wrong("the commands behind MULTI are too long together: send fewer before EXEC")
	}
	if err != nil {
		m.wrong = true
		c.handler.opts.Stats.Invalid()
		c.out.fail(c.handler.refusal(err, &wire.Undecided))
		return nil
	}
	if err := c.take(size); err != nil {
		return err
	}
	m.taken += int64(size)
	kept := make([][]byte, len(args))
	for i, arg := range args {
		kept[i] = bytes.Clone(arg) // the buffer of the connection is used again
	}
	m.queued = append(m.queued, kept)
	c.out.status("QUEUED")
	return nil
}

func multi(_ context.Context, c *conn, _ [][]byte) error {
	if c.session.multi.open {
		return wrong("MULTI calls can not be nested")
	}
	c.session.multi.open = true
	return c.ok(nil)
}

// leaveMulti ends a transaction, and returns what it had.
func (c *conn) leaveMulti(command string) (m transaction, err error) {
	if !c.session.multi.open {
		return m, wrong(command + " without MULTI")
	}
	m, c.session.multi = c.session.multi, transaction{}
	c.held.Give(c.party, m.taken)
	return m, nil
}

func exec(_ context.Context, c *conn, _ [][]byte) error {
	m, err := c.leaveMulti("EXEC")
	switch {
	case err != nil:
		return err
	case m.wrong:
		return &refusal{"EXECABORT", "Transaction discarded because of previous errors."}
	}
	c.out.list('*', int64(len(m.queued)))
	c.session.multi.due = m.queued
	return nil
}

func discard(_ context.Context, c *conn, _ [][]byte) error {
	_, err := c.leaveMulti("DISCARD")
	return c.ok(err)
}

func watch(context.Context, *conn, [][]byte) error {
	return wrong("WATCH is not here: no key can be read, so nothing can depend on one; every command decides by itself")
}
