package faulttest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A loss is what a relay does with the reply to a script.
type loss int

const (
	forward loss = iota
	drop         // discard the reply and all later ones, and leave the connection open
	cut          // close the connection in place of the reply
)

// A relay forwards commands from a client to a server. It counts the scripts that the client sends, and can
// lose their replies after the server ran them.
type relay struct {
	ln net.Listener

	mu     sync.Mutex
	target string         // guarded by mu
	loses  loss           // guarded by mu
	counts map[string]int // commands seen, by name in capitals; guarded by mu
	onLost func()         // called when a script's reply is lost; guarded by mu
	links  []*link        // guarded by mu
}

// A link is one connection through the relay.
type link struct {
	relay          *relay
	client, server net.Conn
	loses          loss // guarded by the relay's mu
}

func newRelay(t testing.TB) *relay {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &relay{ln: ln, counts: map[string]int{}}
	t.Cleanup(func() { ln.Close(); r.move("") })
	return r
}

// serve accepts connections for the server at target.
func (r *relay) serve(target string) {
	r.move(target)
	go func() {
		for {
			client, err := r.ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			target := r.target
			r.mu.Unlock()
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			l := &link{relay: r, client: client, server: server}
			r.mu.Lock()
			r.links = append(r.links, l)
			r.mu.Unlock()
			go l.requests()
			go l.replies()
		}
	}()
}

// move closes all connections, and forwards new ones to another server.
func (r *relay) move(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	for _, l := range r.links {
		l.end()
	}
}

func (r *relay) addr() string { return r.ln.Addr().String() }

// lose loses the replies to scripts from now on. If f is not nil, it is called for each.
func (r *relay) lose(how loss, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses, r.onLost = how, f
}

// silence drops all replies on each connection that there is, or on one of so many. New connections work.
func (r *relay) silence(of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, l := range r.links {
		if i%of == 0 {
			l.loses = drop
		}
	}
}

// heal forwards all replies again, and closes the connections that lost some.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses, r.onLost = forward, nil
	for _, l := range r.links {
		if l.loses != forward {
			l.end()
		}
	}
}

// sent returns how many commands of a name the client has sent.
func (r *relay) sent(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[name]
}

// scripts returns how many scripts the client has sent.
func (r *relay) scripts() int { return r.sent("EVALSHA") + r.sent("EVAL") }

func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.counts)
}

// requests reads, counts and forwards commands.
func (l *link) requests() {
	defer l.end()
	for from := bufio.NewReader(l.client); ; {
		name, raw, err := readCommand(from)
		if err != nil {
			return
		}
		l.relay.mu.Lock()
		l.relay.counts[name]++
		if l.relay.loses != forward && strings.HasPrefix(name, "EVAL") {
			l.loses = l.relay.loses // before the server can answer
		}
		l.relay.mu.Unlock()
		if _, err := l.server.Write(raw); err != nil {
			return
		}
	}
}

// replies forwards replies, or loses them.
func (l *link) replies() {
	defer l.end()
	for b := make([]byte, 64<<10); ; {
		n, err := l.server.Read(b)
		if err != nil {
			return
		}
		l.relay.mu.Lock()
		loses, onLost := l.loses, l.relay.onLost
		l.relay.mu.Unlock()
		if loses != forward && onLost != nil {
			onLost()
		}
		switch loses {
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
