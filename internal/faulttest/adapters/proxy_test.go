package adapters

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fault is what a proxy does with the reply to a script.
type fault int

const (
	pass fault = iota
	drop       // discard the reply and all later ones, and leave the connection open
	cut        // close the connection in place of the reply
)

// losses are the ways in which a client may lose a reply.
var losses = []struct {
	name  string
	fault fault
	opts  Options
}{
	{"it arrives after the client's timeout", drop, Options{Timeout: 150 * time.Millisecond}},
	{"the connection breaks", cut, Options{}},
}

// A proxy forwards commands from a client to a server. It counts the scripts that the client sends, and can
// lose their replies after the server ran them.
type proxy struct {
	ln net.Listener

	mu     sync.Mutex
	target string         // guarded by mu
	fault  fault          // guarded by mu
	counts map[string]int // commands seen, by name in capitals; guarded by mu
	onLost func()         // called when a script's reply is lost; guarded by mu
	links  []*link        // guarded by mu
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, counts: map[string]int{}}
	t.Cleanup(p.close)
	return p
}

// serve accepts connections for the server at target.
func (p *proxy) serve(target string) {
	p.move(target)
	go func() {
		for {
			client, err := p.ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			target := p.target
			p.mu.Unlock()
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			l := &link{proxy: p, client: client, server: server}
			p.mu.Lock()
			p.links = append(p.links, l)
			p.mu.Unlock()
			go l.requests()
			go l.replies()
		}
	}()
}

// move closes all connections, and forwards new ones to another server.
func (p *proxy) move(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for _, l := range p.links {
		l.end()
	}
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) close() {
	p.ln.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.end()
	}
}

// lose loses the replies to scripts from now on. If f is not nil, it is called for each.
func (p *proxy) lose(how fault, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.onLost = how, f
}

// heal forwards all replies again, and closes the connections that lost some.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.onLost = pass, nil
	for _, l := range p.links {
		l.mu.Lock()
		if l.fault != pass {
			l.end()
		}
		l.mu.Unlock()
	}
}

// sent returns how many commands of a name the client has sent.
func (p *proxy) sent(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[name]
}

// scripts returns how many scripts the client has sent.
func (p *proxy) scripts() int { return p.sent("EVALSHA") + p.sent("EVAL") }

func (p *proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

// A link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu    sync.Mutex
	fault fault // guarded by mu
}

// requests reads, counts and forwards commands.
func (l *link) requests() {
	defer l.end()
	r := bufio.NewReader(l.client)
	for {
		name, raw, err := readCommand(r)
		if err != nil {
			return
		}
		l.proxy.mu.Lock()
		l.proxy.counts[name]++
		if l.proxy.fault != pass && strings.HasPrefix(name, "EVAL") {
			l.mu.Lock()
			l.fault = l.proxy.fault // before the server can answer
			l.mu.Unlock()
		}
		l.proxy.mu.Unlock()
		if _, err := l.server.Write(raw); err != nil {
			return
		}
	}
}

// replies forwards replies, or loses them.
func (l *link) replies() {
	defer l.end()
	b := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(b)
		if err != nil {
			return
		}
		l.mu.Lock()
		fault := l.fault
		l.mu.Unlock()
		if fault != pass {
			l.proxy.mu.Lock()
			lost := l.proxy.onLost
			l.proxy.mu.Unlock()
			if lost != nil {
				lost()
			}
		}
		switch fault {
		case cut:
			return
		case drop:
			continue
		}
		if _, err := l.client.Write(b[:n]); err != nil {
			return
		}
	}
}

func (l *link) end() {
	l.client.Close()
	l.server.Close()
}

// readCommand reads one command, an array of bulk strings, and returns its name and its bytes.
func readCommand(r *bufio.Reader) (name string, raw []byte, err error) {
	var b bytes.Buffer
	line := func() (int, error) {
		s, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		b.WriteString(s)
		return strconv.Atoi(strings.TrimSpace(s[1:]))
	}
	n, err := line()
	if err != nil {
		return "", nil, err
	}
	for i := range n {
		size, err := line()
		if err != nil {
			return "", nil, err
		}
		start := b.Len()
		if _, err := io.CopyN(&b, r, int64(size)+2); err != nil {
			return "", nil, err
		}
		if i == 0 {
			name = strings.ToUpper(string(b.Bytes()[start : start+size]))
		}
	}
	return name, b.Bytes(), nil
}
