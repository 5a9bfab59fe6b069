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

// speaks is the version of Redis whose connection commands the port has. Clients compare it with the version that they need.
const speaks = "7.0.0"

type session struct {
	id    int64
	from  net.Addr
	cert  *x509.Certificate // of the client, verified; nil is none
	token string
	name  string // under which the client takes turns with others
	wrong int    // unknown tokens so far
	multi transaction
	quit  bool
}

// mostWrong bounds the wrong tokens of a connection, so that guessing costs more than the guess.
const mostWrong = 10

// permit returns the caller if it has a right in a domain. Each command calls it, because the file of callers may change.
func (c *conn) permit(domain string, need access.Right) (*access.Caller, error) {
	caller, err := c.handler.opts.Access.Login(c.session.token, c.session.cert, c.session.from)
	if err != nil {
		return nil, err
	}
	c.session.name = caller.Client()
	return caller, c.handler.opts.Access.Permit(caller, domain, need)
}

func word(args [][]byte) string {
	if len(args) == 0 {
		return ""
	}
	return strings.ToUpper(string(args[0]))
}

// login takes a token, of the user default or of the client in the file of callers. Too many wrong tokens end the connection.
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
	return &refusal{"WRONGPASS", "invalid username-password pair or user is disabled."}
}

func (c *conn) ok(err error) error {
	if err == nil {
		c.out.status("OK")
	}
	return err
}

func auth(_ context.Context, c *conn, args [][]byte) error {
	user := "default"
	switch {
	case len(args) > 2:
		return wrongArity("auth")
	case len(args) == 2:
		user = string(args[0])
	}
	return c.ok(c.login(user, string(args[len(args)-1])))
}

// hello answers HELLO [2|3 [AUTH user token] [SETNAME name]]. An error changes nothing. The port ignores the name.
func hello(_ context.Context, c *conn, args [][]byte) error {
	version, user, token, login := int64(2), "", "", false
	if c.out.v3 {
		version = 3
	}
	if len(args) > 0 {
		var err error
		if version, err = strconv.ParseInt(string(args[0]), 10, 64); err != nil || version < 2 || version > 3 {
			return &refusal{"NOPROTO", "unsupported protocol version"}
		}
		for args = args[1:]; len(args) > 0; {
			switch option := word(args); {
			case option == "AUTH" && len(args) > 2:
				user, token, login, args = string(args[1]), string(args[2]), true, args[3:]
			case option == "SETNAME" && len(args) > 1:
				args = args[2:]
			default:
				return wrong("Syntax error in HELLO option '" + wire.Clip(string(args[0])) + "'")
			}
		}
	}
	if login {
		if err := c.login(user, token); err != nil {
			return err
		}
	}
	c.out.v3 = version == 3
	c.out.object([]field{
		{"server", "sash"}, {"version", speaks}, {"proto", version}, {"id", c.session.id}, {"mode", "standalone"}, {"role", "master"},
		{"modules", []wire.Limit{}},
	})
	return nil
}

func client(_ context.Context, c *conn, args [][]byte) error {
	switch sub := word(args); sub {
	case "SETINFO", "SETNAME", "NO-EVICT", "NO-TOUCH", "TRACKING": // no reply here can be cached, so nothing is tracked
		return c.ok(nil)
	case "ID":
		c.out.number(c.session.id)
		return nil
	default:
		return wrong("unknown subcommand '" + wire.Clip(sub) + "'")
	}
}

func ping(_ context.Context, c *conn, args [][]byte) error {
	switch len(args) {
	case 0:
		c.out.status("PONG")
	case 1:
		c.out.text(string(args[0]))
	default:
		return wrongArity("ping")
	}
	return nil
}

func quit(_ context.Context, c *conn, _ [][]byte) error {
	c.session.quit = true
	return c.ok(nil)
}

func selectDatabase(_ context.Context, c *conn, args [][]byte) error {
	if string(args[0]) != "0" {
		return wrong("DB index is out of range: there is one, 0")
	}
	return c.ok(nil)
}

func info(_ context.Context, c *conn, _ [][]byte) error {
	c.out.text("# Server\r\nserver_name:sash\r\nredis_version:" + speaks + "\r\nredis_mode:standalone\r\n\r\n" +
		"# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n")
	return nil
}
