package redisclient

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands between a client and a server.
type proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	to    string     // guarded by mu: where new connections lead; empty ends them at once
	taken int        // guarded by mu: connections so far
	ends  []net.Conn // guarded by mu: of the connections that lead somewhere
}

func through(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		p.serve()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		for _, end := range p.ends {
			_ = end.Close()
		}
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
		to := p.to
		p.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.ends = append(p.ends, client, server)
		p.mu.Unlock()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			p.work.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}
