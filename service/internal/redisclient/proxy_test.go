package redisclient

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A proxy stands between a client and a server.
type proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	to     string        // guarded by mu: where new connections lead; empty ends them at once
	delay  time.Duration // guarded by mu: of every piece that passes, for new connections
	taken  int           // guarded by mu: connections so far
	links  []*link       // guarded by mu
	closed bool          // guarded by mu
}

// A link is one connection through the proxy.
type link struct {
	ends [2]net.Conn
	hole chan struct{} // closed when it swallows what comes
	once sync.Once
}

func through(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to}
	p.work.Go(p.serve)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.closed = true
		for _, link := range p.links {
			link.end()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// lead has new connections lead elsewhere.
func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// swallow makes a black hole of the connections that there are.
func (p *proxy) swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.once.Do(func() { close(l.hole) })
	}
}

// connections returns how many there were.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.taken++
		to, delay := p.to, p.delay
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{ends: [2]net.Conn{client, server}, hole: make(chan struct{})}
		p.mu.Lock()
		p.links = append(p.links, l)
		if p.closed {
			l.end()
		}
		p.mu.Unlock()
		p.work.Go(func() { l.pass(server, client, delay) })
		p.work.Go(func() { l.pass(client, server, delay) })
	}
}

func (l *link) end() {
	for _, c := range l.ends {
		_ = c.Close()
	}
}

func (l *link) pass(to io.Writer, from io.Reader, delay time.Duration) {
	defer l.end()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		<-time.After(delay)
		select {
		case <-l.hole:
			continue
		default:
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}
