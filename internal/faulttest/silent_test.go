package faulttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

// Connections fall silent without ending, as behind a firewall that forgot them; new ones work. Calls are decided again
// within 4 s, without a setting of the test's own.
func TestConnectionsFallSilent(t *testing.T) {
	each(t, func(t *testing.T, a adapter) {
		for _, of := range []int{1, 2} {
			t.Run(fmt.Sprintf("one of %d", of), func(t *testing.T) {
				t.Parallel()
				f := newForgetful(t, redistest.Start(t).Addr())
				l := limiter(t, a.open(t, target{addrs: []string{f.Addr().String()}}), sash.Every(100_000, time.Hour))
				if failed := decideTogether(t, l, 10*time.Second); failed > 0 {
					t.Logf("%d calls failed before", failed)
				}
				f.forget(of)
				since := time.Now()
				failed := decideTogether(t, l, 4*time.Second)
				t.Logf("%d calls failed until all callers were decided again, after %v", failed, time.Since(since).Round(time.Millisecond))
			})
		}
	})
}

// decideTogether calls from 8 goroutines, with 50 ms for each call, until each was decided 20 times in a row. It fails
// the test if that takes longer than patience. It returns the number of calls that failed.
func decideTogether(t *testing.T, l *sash.Limiter, patience time.Duration) int64 {
	t.Helper()
	end := time.Now().Add(patience)
	var failed, late atomic.Int64
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for inRow := 0; inRow < 20; {
				if time.Now().After(end) {
					late.Add(1)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := l.Allow(ctx, sash.Key("caller", fmt.Sprint(caller)))
				cancel()
				inRow++
				if err != nil {
					inRow = 0
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("%d of 8 callers are not decided again after %v; %d calls failed", n, patience, failed.Load())
	}
	return failed.Load()
}

// A forgetful is a proxy that can stop forwarding on the connections that it has.
type forgetful struct {
	net.Listener
	mu    sync.Mutex
	links []*link
}

// A link is a connection through a forgetful.
type link struct {
	client, server net.Conn
	silent         atomic.Bool
}

func newForgetful(t *testing.T, server string) *forgetful {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forgetful{Listener: listener}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			l := &link{client: client, server: conn}
			f.mu.Lock()
			f.links = append(f.links, l)
			f.mu.Unlock()
			work.Go(func() { l.forward(client, conn) })
			work.Go(func() { l.forward(conn, client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		f.mu.Lock()
		for _, l := range f.links {
			l.client.Close()
			l.server.Close()
		}
		f.mu.Unlock()
		work.Wait()
	})
	return f
}

// forget makes each connection silent, or one of so many.
func (f *forgetful) forget(of int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range f.links {
		l.silent.Store(i%of == 0)
	}
}

// forward copies from one end to the other, and drops what arrives while the link is silent.
func (l *link) forward(to io.Writer, from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if l.silent.Load() {
			if err != nil {
				return // the other end does not learn of it
			}
			continue
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			l.client.Close()
			l.server.Close()
			return
		}
	}
}
