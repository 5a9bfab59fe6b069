package resp

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// A command has either run or decides.
type command struct {
	name  string
	least int // arguments, its name included
	// run answers at once, and may change the session.
	run func(ctx context.Context, c *conn, args [][]byte)
	// decides reads a command that asks the store, which may be answered beside others.
	decides func(c *conn, args [][]byte) (decision, error)
	settles bool // it is not decided beside commands that do not, which may be on the same subject
	keyed   bool // its first argument names what is decided
}

// commands are all, by their names in small letters.
var commands map[string]*command

func init() { // COMMAND lists them
	commands = map[string]*command{
		"cl.throttle":  {name: "cl.throttle", decides: throttled, keyed: true}, // which counts its arguments itself
		"sash.allow":   {name: "sash.allow", least: 4, decides: allow, keyed: true},
		"sash.book":    {name: "sash.book", least: 4, decides: book, keyed: true},
		"sash.peek":    {name: "sash.peek", least: 4, decides: peek, keyed: true},
		"sash.reserve": {name: "sash.reserve", least: 4, decides: reserve, keyed: true},
		"sash.reset":   {name: "sash.reset", least: 4, run: forget, keyed: true},
		"sash.settle":  {name: "sash.settle", least: 3, decides: settle, settles: true},

		"auth":    {name: "auth", least: 2, run: auth},
		"client":  {name: "client", least: 2, run: client},
		"command": {name: "command", least: 1, run: list},
		"echo":    {name: "echo", least: 2, run: echo},
		"hello":   {name: "hello", least: 1, run: hello},
		"info":    {name: "info", least: 1, run: info},
		"ping":    {name: "ping", least: 1, run: ping},
		"quit":    {name: "quit", least: 1, run: quit},
		"reset":   {name: "reset", least: 1, run: reset},
		"select":  {name: "select", least: 2, run: selectDatabase},
	}
}

// list answers COMMAND, for clients that learn the commands of a server.
func list(_ context.Context, c *conn, args [][]byte) {
	switch sub := word(args); sub {
	case "":
		c.out.list(len(commands))
		for _, name := range slices.Sorted(maps.Keys(commands)) {
			c.out.command(commands[name])
		}
	case "COUNT":
		c.out.number(int64(len(commands)))
	case "DOCS": // clients fall back on what they know
		c.out.fields(0)
	case "INFO":
		c.out.list(len(args) - 1)
		for _, arg := range args[1:] {
			if of := commands[strings.ToLower(string(arg))]; of != nil {
				c.out.command(of)
			} else {
				c.out.null()
			}
		}
	default:
		c.handler.refuse(&c.out, unknownSubcommand(sub))
	}
}

// command writes what COMMAND says of one.
func (r *reply) command(of *command) {
	key := int64(0)
	if of.keyed {
		key = 1
	}
	r.list(6)
	r.text(of.name)
	r.number(-int64(max(of.least, 1))) // that many or more
	r.list(0)
	r.number(key) // the first, the last and the step
	r.number(key)
	r.number(key)
}
