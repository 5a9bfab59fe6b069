package resp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

// Replies of a pipeline are in order, and so are decisions on one subject, between others and beside them.
func TestAPipelineIsAnsweredInOrder(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	var all strings.Builder
	for i := range 40 {
		fmt.Fprint(&all, encode("CL.THROTTLE", "hot", "99", "100", "60"), encode("CL.THROTTLE", fmt.Sprint("key ", i), "9", "10", "60"))
		if i%10 == 5 {
			fmt.Fprint(&all, encode("ECHO", fmt.Sprint(i)), encode("CL.THROTTLE", "hot"))
		}
	}
	c.send(all.String())
	for i := range 40 {
		if got, want := c.read(), fmt.Sprintf("[0 100 %d -1 60]", 99-i); got != want {
			t.Errorf("hot call %d: %s, want %s", i, got, want)
		}
		if got := c.read(); got != "[0 10 9 -1 60]" {
			t.Errorf("key %d: %s", i, got)
		}
		if i%10 == 5 {
			if got := c.read(); got != fmt.Sprint(i) {
				t.Errorf("ECHO %d: %s", i, got)
			}
			if got := c.read(); !strings.HasPrefix(got, "-Cell error") {
				t.Errorf("a wrong command: %s", got)
			}
		}
	}
}

// A gate is a store whose decisions wait until a given number of them has come.
type gate struct {
	driver.Passthrough
	mu      sync.Mutex
	waiting int
	most    int
	enough  int
	open    chan struct{}
}

func (g *gate) Do(ctx context.Context, b *driver.Batch) error {
	g.mu.Lock()
	g.waiting++
	g.most = max(g.most, g.waiting)
	if g.waiting == g.enough {
		close(g.open)
	}
	g.mu.Unlock()
	defer func() { g.mu.Lock(); g.waiting--; g.mu.Unlock() }()
	select {
	case <-g.open:
		return g.Store.Do(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func openGate(t *testing.T, enough int, timeout time.Duration) (*port, *gate) {
	t.Helper()
	g := &gate{Passthrough: driver.Passthrough{Store: memstore.New(nil)}, enough: enough, open: make(chan struct{})}
	decider := servertest.Decider(t, g, rules)
	p := &port{}
	p.listen(t, Server{}, New(decider, &Options{Timeout: timeout}))
	return p, g
}

// The store gets the decisions of a pipeline beside one another: it answers none before it has 50.
func TestAPipelineIsDecidedTogether(t *testing.T) {
	p, _ := openGate(t, 50, 30*time.Second)
	c := p.connect(t)
	var all strings.Builder
	for i := range 50 {
		all.WriteString(encode("SASH.ALLOW", "shop", "ENTRY", "user", fmt.Sprint(i)))
	}
	c.send(all.String())
	for i := range 50 {
		if got := c.read(); !strings.HasPrefix(got, "[allowed 1 remaining 2 ") {
			t.Errorf("user %d: %s", i, got)
		}
	}
}

// The pipelines of a client have a share of the goroutines, and each connection its own: those of others are decided together.
func TestAClientHasAShareOfTheGoroutines(t *testing.T) {
	p, g := openGate(t, 10_000, 30*time.Second)
	reach := func(want int) {
		t.Helper()
		servertest.Wait(t, fmt.Sprintf("not %d decisions are under way", want), func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.waiting == want
		})
	}
	var all strings.Builder
	for i := range 60 {
		all.WriteString(encode("SASH.ALLOW", "shop", "ENTRY", "user", fmt.Sprint(i)))
	}
	const connections = 20
	var peers []*peer
	for range connections {
		peers = append(peers, p.connect(t))
		peers[len(peers)-1].send(all.String())
	}
	reach(connections + maxGoroutines/2)
	peers = append(peers, p.connectFrom(t, 2))
	peers[connections].send(all.String())
	reach(connections + maxGoroutines/2 + 60)
	close(g.open)
	for _, c := range peers {
		for range 60 {
			if got := c.read(); !strings.HasPrefix(got, "[allowed ") {
				t.Error(got)
			}
		}
	}
}

// A store that hangs is waited for no longer than the timeout, for all commands of a pipeline at once.
func TestAStoreThatHangsIsNotWaitedFor(t *testing.T) {
	p, g := openGate(t, 1000, 50*time.Millisecond)
	c := p.connect(t)
	var all strings.Builder
	for i := range 20 {
		all.WriteString(encode("SASH.ALLOW", "shop", "ENTRY", "user", fmt.Sprint(i)))
	}
	c.send(all.String() + encode("PING"))
	for range 20 {
		if got := c.read(); !strings.HasPrefix(got, "-SASHSTORE budget: the store did not answer") {
			t.Error(got)
		}
	}
	if got := c.read(); got != "PONG" {
		t.Error(got)
	}
	if g.most != 20 {
		t.Errorf("%d decisions were under way at once, want all 20", g.most)
	}
}
