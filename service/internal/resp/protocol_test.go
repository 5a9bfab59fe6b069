package resp

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/servertest"
)

// A mistake in the protocol ends the connection, behind the replies to what came before it.
func TestMistakesInTheProtocol(t *testing.T) {
	p := open(t, "")
	for text, want := range map[string]string{
		"*1\r\n$-5\r\nPING\r\n":          "-ERR Protocol error: invalid bulk length",
		"*1\r\n$9223372036854775807\r\n": "-ERR Protocol error: invalid bulk length",
		"*1\r\n$\r\n":                    "-ERR Protocol error: invalid bulk length",
		"*1\r\n$4\r\nPINGS\r\n":          "-ERR Protocol error: an argument is longer than its length says",
		"*1\r\nPING\r\n":                 "-ERR Protocol error: expected '$', got 'P'",
		"*-1\r\n":                        "-ERR Protocol error: invalid multibulk length",
		"*257\r\n":                       "-ERR Protocol error: invalid multibulk length",
		"*1\n$4\nPING\n":                 "-ERR Protocol error: invalid multibulk length",
		"*1\r4":                          "-ERR Protocol error: invalid multibulk length",
		"*2\r\n$4\r\nECHO\r\n$16380\r\n": "-ERR Protocol error: a command has more than 16384 bytes",
		"$4 PING\r\n":                    "-ERR Protocol error: send commands as arrays",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nSASH.ALLOW shop ENTRY a b\n": "-ERR Protocol error: send commands as arrays",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaa":        "-ERR Protocol error: send commands as arrays", // TLS
	} {
		before := p.invalid()
		c := p.connect(t)
		c.send(encode("PING") + text)
		c.gets("PONG", want)
		if rest, _ := io.ReadAll(c.in); len(rest) > 0 {
			t.Errorf("%q: then %q", text, rest)
		}
		if p.invalid() != before+1 {
			t.Errorf("%q is not counted", text)
		}
	}
}

func TestHealthChecksSendLines(t *testing.T) {
	p := open(t, "")
	c := p.connect(t)
	c.send("\r\nPING\r\n*0\r\nping\nQUIT\r\n")
	c.gets("PONG", "PONG", "OK")
}

// The buffer of a connection does not grow with what is sent over it, even if no read ends at the end of a command.
func TestTheBufferOfAConnectionIsBounded(t *testing.T) {
	c := &conn{serving: &serving{Server: Server{held: conns.NewShare(mostHeld)}}}
	command := encode("ECHO", strings.Repeat("x", 3001))
	c.net = &endless{text: command}
	for range 1000 {
		_, rest, err := c.next()
		servertest.Check(t, err)
		c.keep(rest)
		if cap(c.buf) > 2*maxCommand {
			t.Fatalf("the buffer has %d bytes", cap(c.buf))
		}
	}
}

// Of a pipeline of short commands few are read at a time: each has a list of arguments in memory, which is many times as
// long as the command.
func TestAPipelineOfShortCommandsIsReadInParts(t *testing.T) {
	c := &conn{
		serving: &serving{Server: Server{held: conns.NewShare(mostHeld)}}, buf: make([]byte, 0, maxCommand), net: &endless{text: "PING\r\n"},
	}
	for range 100 {
		cmds, rest, err := c.next()
		servertest.Check(t, err)
		if len(cmds) > maxBatch {
			t.Fatalf("%d commands at once", len(cmds))
		}
		for _, args := range cmds {
			if len(args) != 1 || string(args[0]) != "PING" {
				t.Fatalf("%q", args)
			}
		}
		c.keep(rest)
	}
}

// endless is a connection over which one command comes again and again.
type endless struct {
	net.Conn
	text string
	at   int
}

// Read fills all that it gets.
func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	return len(p), nil
}

// SetReadDeadline is of net.Conn.
func (e *endless) SetReadDeadline(time.Time) error { return nil }

// Whatever a command is made of, its reply is one reply: the next command gets its own.
func TestEveryCommandHasOneReply(t *testing.T) {
	p := open(t, everything)
	names := slices.Sorted(maps.Keys(commands))
	words := []string{"shop", "ENTRY", "user", "42", "LIMIT", "25/5s", "COST", "1", "2", "ID", "3", "AUTH", "SETNAME", "INFO", "", "\xff", "0", "-1"}
	rapid.Check(t, func(rt *rapid.T) {
		c := p.connect(t)
		defer func() { _ = c.conn.Close() }()
		for range 5 {
			name := rapid.SampledFrom(names).Draw(rt, "command")
			args := rapid.SliceOfN(rapid.SampledFrom(words), 0, 8).Draw(rt, "arguments")
			if name == "quit" || name == "multi" { // behind which every command is queued
				continue
			}
			c.send(encode(append([]string{name}, args...)...) + encode("ECHO", "mark"))
			first, err := readReply(c.in)
			if err != nil || strings.HasPrefix(first, "-ERR internal error") {
				rt.Fatalf("%s %q: %s, %v", name, args, first, err)
			}
			if mark, err := readReply(c.in); err != nil || mark != "mark" {
				rt.Fatalf("%s %q: %s, and then %s, %v", name, args, first, mark, err)
			}
		}
	})
}

// A client that takes no replies is disconnected, and holds no more than the bounds until then.
func TestAClientThatTakesNoRepliesIsDisconnected(t *testing.T) {
	p := &port{}
	p.listen(t, Server{writeTimeout: 100 * time.Millisecond}, New(nil, nil))
	c := p.connect(t)
	pings := []byte(strings.Repeat(encode("ECHO", strings.Repeat("x", 4000)), 10))
	for {
		if _, err := c.conn.Write(pings); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
			return
		}
	}
}

// An address has commands without an end, and replies that it does not take, within its share: connections beyond it end,
// another address is served, and so is the first one once it has sent the ends.
func TestAnAddressHoldsNoMoreThanItsShare(t *testing.T) {
	const most, piece, connections = 1 << 19, 12 << 10, 40 // three doublings of the first buffer, which is free
	long := strings.Repeat("x", 15<<10)
	for name, text := range map[string]string{"commands": encode("ECHO", long)[:piece], "replies": strings.Repeat(encode("ECHO", long), 600)} {
		t.Run(name, func(t *testing.T) {
			p, held := &port{}, conns.NewShare(most)
			p.listen(t, Server{held: held}, New(nil, nil))
			var ended atomic.Int64
			var all []*peer
			var group sync.WaitGroup
			for range connections {
				c := p.connect(t)
				all = append(all, c)
				group.Go(func() {
					if _, err := io.WriteString(c.conn, text); err == nil && name == "commands" {
						_, err = c.in.ReadByte()
						if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
							ended.Add(1)
						}
					} else if err != nil && !errors.Is(err, net.ErrClosed) {
						ended.Add(1)
					}
				})
			}
			servertest.Wait(t, "the connections beyond the share stay", func() bool { return ended.Load() >= connections-most/2/piece })
			p.connectFrom(t, 2).is("ECHO "+long, long)
			for _, c := range all {
				_ = c.conn.Close()
			}
			group.Wait()
			servertest.Wait(t, "something stays held", func() bool {
				ok := held.Take("anyone", most/2)
				if ok {
					held.Give("anyone", most/2)
				}
				return ok
			})
			p.connect(t).is("ECHO "+long, long)
			if !strings.Contains(p.log.String(), "its connection is closed") {
				t.Errorf("logged: %s", p.log)
			}
		})
	}
}

// Only whole commands within the bounds pass, and are read as they were written.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n"))
	f.Add([]byte("*1\r\n$-5\r\n"))
	f.Add([]byte("*1\r\n$9223372036854775807\r\n"))
	f.Add([]byte("PING\r\n\r\n*0\r\nQUIT\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			args, n, err := frame(b)
			if n < 0 || n > len(b) || n > maxCommand || len(args) > maxArgs || err != nil && n != 0 {
				t.Fatalf("%q: %d, %v", b, n, err)
			}
			if n == 0 {
				return
			}
			for less := range n {
				if _, early, err := frame(b[:less]); early != 0 || err != nil {
					t.Fatalf("%q, of which %d bytes have come: %d, %v", b[:n], less, early, err)
				}
			}
			if b[0] == '*' && len(args) > 0 {
				if again := encode(texts(args)...); again != string(b[:n]) && !bytes.Contains(b[:n], []byte("0")) { // but leading zeros
					t.Fatalf("%q is read as %q", b[:n], args)
				}
			}
			b = b[n:]
		}
	})
}

func texts(args [][]byte) (all []string) {
	for _, arg := range args {
		all = append(all, string(arg))
	}
	return all
}
