package resp

import (
	"context"
	"errors"
	"strings"
	"sync"

	"example.com/sash/failover"
	"example.com/sash/service/internal/wire"
)

// Bounds of commands that are decided concurrently.
const (
	maxBatch      = 64   // commands of a pipeline
	maxGoroutines = 1024 // goroutines, shared by clients; further commands of a pipeline are decided one after the other
)

// answer answers commands in order, and reports whether the connection stays open. Successive commands that ask the store
// are decided concurrently, so that they share a round trip. Commands on one subject are decided one after the other.
func (c *conn) answer(ctx context.Context, cmds [][][]byte) (stays bool) {
	for len(cmds) > 0 {
		if len(c.out.b) > mostReplies && c.flush() != nil {
			return false
		}
		first, err := find(cmds[0])
		if c.session.multi.open && !first.now {
			if c.enqueue(cmds[0], err) != nil {
				return false
			}
			cmds = cmds[1:]
			continue
		}
		if err == nil && first.decides != nil {
			all := []decision{c.prepare(first, cmds[0][1:])}
			for cmds = cmds[1:]; len(cmds) > 0 && len(all) < maxBatch; cmds = cmds[1:] {
				next, err := find(cmds[0])
				if err != nil || next.decides == nil || next.settles != first.settles {
					break
				}
				all = append(all, c.prepare(next, cmds[0][1:]))
			}
			if ctx := failover.WithClient(ctx, c.session.name); len(all) > 1 {
				c.decideBatch(ctx, all)
			} else {
				c.decide(ctx, &all[0], &c.out)
			}
			continue
		}
		if err != nil {
			c.handler.opts.Stats.Invalid()
			first.run = func(context.Context, *conn, [][]byte) error { return err }
		}
		c.perform(ctx, first, cmds[0][1:])
		if cmds = cmds[1:]; c.session.quit {
			return false
		}
		if due := c.session.multi.due; due != nil {
			c.session.multi.due = nil
			if !c.answer(ctx, due) {
				return false
			}
			c.leaveMulti()
		}
	}
	return true
}

func (c *conn) perform(ctx context.Context, of command, args [][]byte) {
	defer c.recovered(&c.out, len(c.out.b))
	if err := of.run(ctx, c, args); err != nil {
		c.out.fail(c.handler.refusal(err, &wire.Undecided))
	}
}

// prepare reads a command that asks the store. If the command is wrong, its decision replies with the error.
func (c *conn) prepare(of command, args [][]byte) (d decision) {
	var panicked reply
	d.make = func(_ context.Context, out *reply) error { out.b = append(out.b, panicked.b...); return nil }
	defer c.recovered(&panicked, 0)
	read, err := of.decides(c, args)
	if err != nil {
		read = decision{silent: &wire.Undecided, make: func(context.Context, *reply) error { return err }}
	}
	return read
}

func (c *conn) decide(ctx context.Context, d *decision, out *reply) {
	defer c.recovered(out, len(out.b))
	ctx, cancel := context.WithTimeout(ctx, c.handler.opts.Timeout)
	defer cancel()
	if err := d.make(ctx, out); err != nil {
		if _, mistaken := errors.AsType[*refusal](err); mistaken {
			c.handler.opts.Stats.Invalid()
		}
		out.fail(c.handler.refusal(err, d.silent))
	}
}

// decideBatch makes decisions concurrently, and writes their replies in order.
func (c *conn) decideBatch(ctx context.Context, all []decision) {
	replies := make([]reply, len(all))
	lanes, of := [][]int{}, make(map[string]int)
	for i, d := range all {
		replies[i].v3 = c.out.v3
		lane, ok := of[d.subject]
		if !ok || d.subject == "" {
			lane = len(lanes)
			lanes, of[d.subject] = append(lanes, nil), lane
		}
		lanes[lane] = append(lanes[lane], i)
	}
	inOrder := func(lane []int) {
		for _, i := range lane {
			c.decide(ctx, &all[i], &replies[i])
		}
	}
	var others sync.WaitGroup
	client := c.session.name
	for _, lane := range lanes[1:] {
		if !c.handler.slots.Take(client, 1) { // the client has its share
			inOrder(lane)
			continue
		}
		others.Go(func() {
			defer c.handler.slots.Give(client, 1)
			inOrder(lane)
		})
	}
	inOrder(lanes[0])
	others.Wait()
	for i := range replies {
		c.out.b = append(c.out.b, replies[i].b...)
	}
}

// find returns the command that the arguments name. If it is unknown or has too few arguments, the error has the words of Redis.
func find(args [][]byte) (command, error) {
	name := string(args[0])
	of, ok := commands[strings.ToLower(name)]
	switch {
	case !ok:
		return of, wrong("unknown command '" + wire.Clip(name) + "'")
	case len(args) < of.least:
		return of, wrongArity(name)
	}
	return of, nil
}

// A command has either run or decides. Both return what is wrong.
type command struct {
	least int // arguments, its name included
	// run answers at once, and may change the session.
	run func(ctx context.Context, c *conn, args [][]byte) error
	// decides reads a command that asks the store. The command may be decided concurrently with others.
	decides func(c *conn, args [][]byte) (decision, error)
	now     bool // answered at once even after MULTI
	settles bool // not decided beside commands that do not settle, which may be on the same subject
}

var commands = map[string]command{
	"cl.throttle":  {decides: throttled}, // counts its arguments itself
	"sash.allow":   {least: 4, decides: allow},
	"sash.book":    {least: 4, decides: book},
	"sash.extend":  {least: 2, decides: extend, settles: true},
	"sash.peek":    {least: 4, decides: peek},
	"sash.reserve": {least: 4, decides: reserve},
	"sash.reset":   {least: 4, run: reset},
	"sash.settle":  {least: 3, decides: settle, settles: true},

	"del":     {least: 2, run: del},
	"eval":    {least: 3, decides: eval},
	"evalsha": {least: 3, decides: evalSHA},
	"script":  {least: 3, run: script},
	"unlink":  {least: 2, run: del},

	"discard": {least: 1, run: discard, now: true},
	"exec":    {least: 1, run: exec, now: true},
	"multi":   {least: 1, run: multi, now: true},
	"watch":   {least: 2, run: watch, now: true},

	"auth":   {least: 2, run: auth},
	"client": {least: 2, run: client},
	"echo":   {least: 2, run: ping},
	"hello":  {least: 1, run: hello},
	"info":   {least: 1, run: info},
	"ping":   {least: 1, run: ping},
	"quit":   {least: 1, run: quit, now: true},
	"select": {least: 2, run: selectDatabase},
}
