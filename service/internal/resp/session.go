package resp

import (
	"context"
	"crypto/x509"
	"net"
	"strconv"
	"strings"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/wire"
)

// speaks is the version of Redis whose commands to connect the port has. Clients compare it with what they need.
const speaks = "7.0.0"

// A session is what a connection has said of itself.
type session struct {
	id    int64
	from  net.Addr
	cert  *x509.Certificate // of the client, verified; nil is none
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
	user := "default"
	if len(args) > 1 {
		user = string(args[0])
	}
	err := error(wrongArity("auth"))
	if len(args) <= 2 {
		err = c.login(user, string(args[len(args)-1]))
	}
	if err != nil {
		c.handler.refuse(&c.out, err)
		return
	}
	c.out.status("OK")
}

// hello answers HELLO [2|3 [AUTH user token] [SETNAME name]]. After an error nothing is changed. Nobody reads the name.
func hello(_ context.Context, c *conn, args [][]byte) {
	v3, user, token, login := c.out.v3, "", "", false
	if len(args) > 0 {
		if v3 = string(args[0]) == "3"; !v3 && string(args[0]) != "2" {
			c.handler.refuse(&c.out, &refusal{"NOPROTO", "unsupported protocol version"})
			return
		}
		for args = args[1:]; len(args) > 0; {
			switch option := word(args); {
			case option == "AUTH" && len(args) > 2:
				user, token, login, args = string(args[1]), string(args[2]), true, args[3:]
			case option == "SETNAME" && len(args) > 1:
				args = args[2:]
			default:
				c.handler.refuse(&c.out, wrong("Syntax error in HELLO option '"+clip(string(args[0]))+"'"))
				return
			}
		}
	}
	if login {
		if err := c.login(user, token); err != nil {
			c.handler.refuse(&c.out, err)
			return
		}
	}
	c.out.v3 = v3
	version := int64(2)
	if v3 {
		version = 3
	}
	c.out.object([]field{
		{"server", "sash"}, {"version", speaks}, {"proto", version}, {"id", c.session.id}, {"mode", "standalone"}, {"role", "master"},
		{"modules", []wire.Limit{}},
	})
}

// client answers what clients say of themselves to connect.
func client(_ context.Context, c *conn, args [][]byte) {
	switch sub := word(args); {
	case sub == "SETINFO" && len(args) == 3, sub == "SETNAME" && len(args) == 2:
		c.out.status("OK")
	case sub == "ID" && len(args) == 1:
		c.out.number(c.session.id)
	case sub == "SETINFO", sub == "SETNAME", sub == "ID":
		c.handler.refuse(&c.out, wrongArity("client|"+sub))
	default:
		c.handler.refuse(&c.out, wrong("unknown subcommand '"+clip(sub)+"'"))
	}
}

// ping answers PING and ECHO.
func ping(_ context.Context, c *conn, args [][]byte) {
	switch len(args) {
	case 0:
		c.out.status("PONG")
	case 1:
		c.out.text(string(args[0]))
	default:
		c.handler.refuse(&c.out, wrongArity("ping"))
	}
}

func quit(_ context.Context, c *conn, _ [][]byte) {
	c.session.quit = true
	c.out.status("OK")
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
