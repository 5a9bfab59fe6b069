package resp

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// Bounds of commands that are decided beside one another.
const (
	mostTogether = 64   // of a pipeline
	mostBeside   = 4096 // goroutines of all connections; further commands are decided one after the other
)

// answer answers commands in their order, and reports whether the connection stays. Decisions that follow one another are
// made beside one another, so that the store decides them together; those on one subject are made in their order.
func (c *conn) answer(ctx context.Context, cmds [][][]byte) (stays bool) {
	for i := 0; i < len(cmds); {
		if len(c.out.b) > mostReplies && c.flush() != nil {
			return false
		}
		of, err := find(cmds[i])
		if err != nil || of.decides == nil {
			c.safely(&c.out, func(out *reply) {
				if err != nil {
					c.handler.invalid()
					c.handler.refuse(out, err)
					return
				}
				of.run(ctx, c, cmds[i][1:])
			})
			if c.session.quit {
				return false
			}
			i++
			continue
		}
		all := []decision{c.prepare(of, cmds[i])}
		for i++; i < len(cmds) && len(all) < mostTogether; i++ {
			next, err := find(cmds[i])
			if err != nil || next.decides == nil || next.settles != of.settles {
				break
			}
			all = append(all, c.prepare(next, cmds[i]))
		}
		c.together(ctx, all)
	}
	return true
}

// A decision is a command that asks the store.
type decision struct {
	subject string // commands with the same one are in order
	make    func(ctx context.Context, out *reply)
}

// prepare reads a command that asks the store.
func (c *conn) prepare(of command, args [][]byte) (d decision) {
	var err error
	var panicked reply
	c.safely(&panicked, func(*reply) { d, err = of.decides(c, args[1:]) })
	switch {
	case len(panicked.b) > 0:
		return decision{make: func(_ context.Context, out *reply) { out.b = append(out.b, panicked.b...) }}
	case err == nil:
		return d
	}
	if _, mistaken := errors.AsType[*refusal](err); mistaken {
		c.handler.invalid()
	}
	return decision{make: func(_ context.Context, out *reply) { c.handler.refuse(out, err) }} // in its place among the others
}

// together makes decisions, and writes their replies in order.
func (c *conn) together(ctx context.Context, all []decision) {
	if len(all) == 1 {
		c.safely(&c.out, func(out *reply) { all[0].make(ctx, out) })
		return
	}
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
			c.safely(&replies[i], func(out *reply) { all[i].make(ctx, out) })
		}
	}
	var beside sync.WaitGroup
	for _, lane := range lanes[1:] {
		c.beside(&beside, func() { inOrder(lane) })
	}
	inOrder(lanes[0])
	beside.Wait()
	for i := range replies {
		c.out.b = append(c.out.b, replies[i].b...)
	}
}

// beside runs f in a goroutine, or at once if there are too many.
func (c *conn) beside(running *sync.WaitGroup, f func()) {
	select {
	case c.handler.slots <- struct{}{}:
		running.Go(func() {
			defer func() { <-c.handler.slots }()
			f()
		})
	default:
		f()
	}
}

// find returns the command of arguments. The error, of an unknown one or of too few arguments, has the words of Redis.
func find(args [][]byte) (command, error) {
	name := string(args[0])
	of, ok := commands[strings.ToLower(name)]
	switch {
	case !ok:
		return of, wrong("unknown command '" + clip(name) + "'")
	case len(args) < of.least:
		return of, wrongArity(name)
	}
	return of, nil
}

// clip shortens a text of a command for an error.
func clip(s string) string { return s[:min(len(s), 128)] }

// A command has either run or decides.
type command struct {
	least int // arguments, its name included
	// run answers at once, and may change the session.
	run func(ctx context.Context, c *conn, args [][]byte)
	// decides reads a command that asks the store, which may be answered beside others.
	decides func(c *conn, args [][]byte) (decision, error)
	settles bool // it is not decided beside commands that do not, which may be on the same subject
}

// commands are all, by their names in small letters.
var commands = map[string]command{
	"cl.throttle":  {decides: throttled}, // which counts its arguments itself
	"sash.allow":   {least: 4, decides: allow},
	"sash.book":    {least: 4, decides: book},
	"sash.peek":    {least: 4, decides: peek},
	"sash.reserve": {least: 4, decides: reserve},
	"sash.reset":   {least: 4, run: forget},
	"sash.settle":  {least: 3, decides: settle, settles: true},

	"auth":   {least: 2, run: auth},
	"client": {least: 2, run: client},
	"echo":   {least: 2, run: ping},
	"hello":  {least: 1, run: hello},
	"info":   {least: 1, run: info},
	"ping":   {least: 1, run: ping},
	"quit":   {least: 1, run: quit},
	"select": {least: 2, run: selectDatabase},
}
