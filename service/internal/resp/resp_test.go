package resp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

func TestMain(m *testing.M) { servertest.NoLeak(m) }

const rules = `
domain: shop
descriptors:
  - {key: user, limits: [3/1m]}
  - {key: patient, limits: [3/1m], max_wait: 2m}
  - {key: counted, limits: [3/1m], count_refused: true}
  - {key: free, rate_limit: {unlimited: true}}
`

// everything lets callers without a token do all that the port has.
const everything = "anonymous: {allow: [decide, book, refund, override]}\n"

// A port answers RESP from memory, by a clock that the test moves.
type port struct {
	addr   string
	now    atomic.Int64
	stats  *stats.Registry
	stop   context.CancelFunc
	served chan error
	log    *servertest.Log
}

func (p *port) invalid() int64 { return p.stats.Snapshot().Requests.Count.Invalid }

// pass moves the clock of the store.
func (p *port) pass(d time.Duration) { p.now.Add(int64(d)) }

// open opens a port over a store in memory. The text is that of the file of callers.
func open(t testing.TB, accessText string) *port {
	t.Helper()
	p := &port{stats: stats.New(nil)}
	p.now.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	store := memstore.New(&memstore.Options{Now: func() time.Time { return time.Unix(0, p.now.Load()) }})
	decider := servertest.Decider(t, store, rules)
	var gate *access.Gate
	if accessText != "" {
		gate = servertest.Gate(t, accessText)
	}
	tokens := wire.NewTokens()
	tokens.Now = func() time.Time { return time.Unix(0, p.now.Load()) }
	p.listen(t, Server{}, New(decider, &Options{
		MaxWait: time.Hour, Tokens: tokens, Access: gate, Stats: p.stats, Log: slog.New(slog.DiscardHandler),
	}))
	return p
}

// listen serves on a free port until the test ends.
func (p *port) listen(t testing.TB, server Server, handler *Handler) {
	t.Helper()
	var config net.ListenConfig
	listener := servertest.Must(config.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	p.log = &servertest.Log{}
	server.Log = slog.New(slog.NewTextHandler(p.log, nil))
	ctx, stop := context.WithCancel(context.Background())
	p.addr, p.stop, p.served = listener.Addr().String(), stop, make(chan error, 1)
	go func() {
		p.served <- server.Serve(ctx, listener, handler)
		close(p.served)
	}()
	t.Cleanup(func() {
		stop()
		servertest.Check(t, <-p.served)
	})
}

type peer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

var dialer net.Dialer

func (p *port) connect(t testing.TB) *peer {
	t.Helper()
	return p.connectFrom(t, 1)
}

// connectFrom connects from an address of 127.0.0.0/8, which Linux has.
func (p *port) connectFrom(t testing.TB, host byte) *peer {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	conn := servertest.Must(from.DialContext(t.Context(), "tcp", p.addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t, conn, bufio.NewReader(conn)}
}

// encode returns a command as clients send it.
func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// do sends a command of words and returns its reply as text: see read.
func (c *peer) do(command string) string {
	c.t.Helper()
	c.send(encode(strings.Fields(command)...))
	return c.read()
}

func (c *peer) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// read returns a reply: a status or a text as it is, an error with a minus, null, [a b] for a list, {a:b} for a map, and a
// double with a comma.
func (c *peer) read() string {
	c.t.Helper()
	text, err := readReply(c.in)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	count, _ := strconv.Atoi(rest)
	switch kind {
	case '+', ':':
		return rest, nil
	case '-', ',':
		return string(kind) + rest, nil
	case '_':
		return "null", nil
	case '$':
		if count < 0 {
			return "null", nil
		}
		text := make([]byte, count+2)
		_, err := io.ReadFull(in, text)
		return string(text[:count]), err
	case '*', '%':
		each, between, ends := count, " ", "[]"
		if kind == '%' {
			each, ends = 2*count, "{}"
		}
		var parts []string
		for range each {
			part, err := readReply(in)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		if kind == '%' {
			for i := 0; i < each; i += 2 {
				parts[i/2] = parts[i] + ":" + parts[i+1]
			}
			parts = parts[:count]
		}
		return ends[:1] + strings.Join(parts, between) + ends[1:], nil
	}
	return "", fmt.Errorf("a reply begins with %q", line)
}

func (c *peer) is(command, want string) {
	c.t.Helper()
	if got := c.do(command); got != want {
		c.t.Errorf("%s\n got %s\nwant %s", command, got, want)
	}
}

func (c *peer) begins(command, want string) {
	c.t.Helper()
	if got := c.do(command); !strings.HasPrefix(got, want) {
		c.t.Errorf("%s\n got %s\nwant %s…", command, got, want)
	}
}

func (c *peer) gets(wants ...string) {
	c.t.Helper()
	for i, want := range wants {
		if got := c.read(); !strings.HasPrefix(got, want) {
			c.t.Errorf("reply %d: %s, want %s…", i, got, want)
		}
	}
}
