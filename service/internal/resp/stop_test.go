package resp

import (
	"context"
	"io"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

// A command that is being decided when the port stops is answered, and so is a pipeline that has come. Then the port ends,
// because nothing more comes.
func TestCommandsInFlightAreAnswered(t *testing.T) {
	p, g := openGate(t, 2, 30*time.Second)
	c, idle := p.connect(t), p.connect(t)
	idle.is("PING", "PONG")
	c.send(encode("SASH.ALLOW", "shop", "ENTRY", "user", "42"))
	servertest.Wait(t, "the command is not decided", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.waiting == 1
	})
	p.stop()
	servertest.Wait(t, "the port does not stop", func() bool { return p.refuses(t) })
	idle.is("PING", "PONG") // a connection that is not silent stays for a while
	close(g.open)
	if got := c.read(); got[:10] != "[allowed 1" {
		t.Error(got)
	}
	for _, c := range []*peer{c, idle} {
		if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
	}
	if err := <-p.served; err != nil {
		t.Error(err)
	}
}

// refuses reports whether the port takes no new connections.
func (p *port) refuses(t *testing.T) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}
