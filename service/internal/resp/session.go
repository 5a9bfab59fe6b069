package resp

import (
	"context"
	"crypto/x509"
	"net"
	"strconv"
	"strings"

	"example.com/sash/service/internal/access"
)

// speaks is the version of Redis whose commands to connect the port has. Clients compare it with what they need.
const speaks = "7.0.0"

// A session is what a connection has said of itself.
type session struct {
	id    int64
	from  net.Addr
	cert  *x509.Certificate // of the client, verified; nil is none
	name  string
	token string
	wrong int // tokens that were not known
	quit  bool
}

// mostWrong bounds the wrong tokens of a connection. A program that has one tries it again on a new connection, which costs a
// caller that guesses more than the guess.
const mostWrong = 10

// caller returns who sends the commands. It is asked for each command, because the file of callers may change.
func (c *conn) caller() (*access.Caller, error) {
	return c.handler.opts.Access.Login(c.session.token, c.session.cert, c.session.from)
}

// permit returns nil if the caller has a right in a domain.
func (c *conn) permit(domain string, need access.Right) error {
	caller, err := c.caller()
	if err != nil {
		return err
	}
	return c.handler.opts.Access.Permit(caller, domain, need)
}

// word returns the first argument in capitals, or "".
func word(args [][]byte) string {
	if len(args) == 0 {
		return ""
	}
	return strings.ToUpper(string(args[0]))
}

func unknownSubcommand(sub string) *refusal {
	return wrong("unknown subcommand '" + clip(sub) + "'")
}

var errPassword = &refusal{"WRONGPASS", "invalid username-password pair or user is disabled."}

// login takes a token: the password of the user default, or of the client's name in the file of callers. A connection with
// too many wrong ones ends behind the error.
func (c *conn) login(user, token string) error {
	if token != "" {
		caller, err := c.handler.opts.Access.Login(token, c.session.cert, c.session.from)
		if err == nil && (user == "default" || caller.Name == "" || user == caller.Name) {
			c.session.token = token
			return nil
		}
	}
	c.session.wrong++
	c.session.quit = c.session.wrong >= mostWrong
	return errPassword
}

func auth(_ context.Context, c *conn, args [][]byte) {
	var user, token string
	switch len(args) {
	case 1:
		user, token = "default", string(args[0])
	case 2:
		user, token = string(args[0]), string(args[1])
	default:
		c.handler.refuse(&c.out, wrongArity("auth"))
		return
	}
	if err := c.login(user, token); err != nil {
		c.handler.refuse(&c.out, err)
		return
	}
	c.out.status("OK")
}

// hello answers HELLO [2|3 [AUTH user token] [SETNAME name]]. After an error nothing is changed.
func hello(_ context.Context, c *conn, args [][]byte) {
	v3, name, user, token, login := c.out.v3, c.session.name, "", "", false
	if len(args) > 0 {
		switch string(args[0]) {
		case "2":
			v3 = false
		case "3":
			v3 = true
		default:
			c.handler.refuse(&c.out, &refusal{"NOPROTO", "unsupported protocol version"})
			return
		}
		for args = args[1:]; len(args) > 0; {
			switch option := word(args); {
			case option == "AUTH" && len(args) > 2:
				user, token, login, args = string(args[1]), string(args[2]), true, args[3:]
			case option == "SETNAME" && len(args) > 1:
				name, args = string(args[1]), args[2:]
			default:
				c.handler.refuse(&c.out, wrong("Syntax error in HELLO option '"+clip(string(args[0]))+"'"))
				return
			}
		}
	}
	if err := checkName(name); err != nil {
		c.handler.refuse(&c.out, err)
		return
	}
	if login {
		if err := c.login(user, token); err != nil {
			c.handler.refuse(&c.out, err)
			return
		}
	}
	c.out.v3, c.session.name = v3, name
	c.out.object([]field{
		{"server", func() { c.out.text("sash") }},
		{"version", func() { c.out.text(speaks) }},
		{"proto", func() { c.out.number(map[bool]int64{false: 2, true: 3}[v3]) }},
		{"id", func() { c.out.number(c.session.id) }},
		{"mode", func() { c.out.text("standalone") }},
		{"role", func() { c.out.text("master") }},
		{"modules", func() { c.out.list(0) }},
	})
}

func checkName(name string) error {
	for i := range len(name) {
		if name[i] < '!' || name[i] > '~' {
			return wrong("Client names cannot contain spaces, newlines or special characters.")
		}
	}
	if len(name) > 256 {
		return wrong("Client names have at most 256 bytes.")
	}
	return nil
}

func client(_ context.Context, c *conn, args [][]byte) {
	sub := word(args)
	switch {
	case sub == "SETINFO" && len(args) == 3: // the name and the version of a library
		c.out.status("OK")
	case sub == "SETNAME" && len(args) == 2:
		if err := checkName(string(args[1])); err != nil {
			c.handler.refuse(&c.out, err)
			return
		}
		c.session.name = string(args[1])
		c.out.status("OK")
	case sub == "GETNAME" && len(args) == 1 && c.session.name == "":
		c.out.null()
	case sub == "GETNAME" && len(args) == 1:
		c.out.text(c.session.name)
	case sub == "ID" && len(args) == 1:
		c.out.number(c.session.id)
	case sub == "SETINFO", sub == "SETNAME", sub == "GETNAME", sub == "ID":
		c.handler.refuse(&c.out, wrongArity("client|"+sub))
	default:
		c.handler.refuse(&c.out, unknownSubcommand(sub))
	}
}

func ping(_ context.Context, c *conn, args [][]byte) {
	switch len(args) {
	case 0:
		c.out.status("PONG")
	case 1:
		c.out.bytes(args[0])
	default:
		c.handler.refuse(&c.out, wrongArity("ping"))
	}
}

func echo(_ context.Context, c *conn, args [][]byte) {
	if len(args) != 1 {
		c.handler.refuse(&c.out, wrongArity("echo"))
		return
	}
	c.out.bytes(args[0])
}

func quit(_ context.Context, c *conn, _ [][]byte) {
	c.session.quit = true
	c.out.status("OK")
}

// reset makes the connection what it was at first.
func reset(_ context.Context, c *conn, _ [][]byte) {
	c.out.v3, c.session.name, c.session.token = false, "", ""
	c.out.status("RESET")
}

func selectDatabase(_ context.Context, c *conn, args [][]byte) {
	switch n, err := strconv.Atoi(string(args[0])); {
	case err != nil || len(args) != 1:
		c.handler.refuse(&c.out, wrong("invalid DB index"))
	case n != 0:
		c.handler.refuse(&c.out, wrong("DB index is out of range: there is one, 0"))
	default:
		c.out.status("OK")
	}
}

// info has what clients look for before they send commands.
func info(_ context.Context, c *conn, _ [][]byte) {
	c.out.text("# Server\r\nserver_name:sash\r\nredis_version:" + speaks + "\r\nredis_mode:standalone\r\n\r\n" +
		"# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n")
}
