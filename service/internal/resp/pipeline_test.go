package resp

import (
	"context"
	"fmt"
	"slices"
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
		c.gets(fmt.Sprintf("[0 100 %d -1 60]", 99-i), "[0 10 9 -1 60]")
		if i%10 == 5 {
			c.gets(fmt.Sprint(i), "-Cell error")
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

func allows(n int) (all string) {
	for i := range n {
		all += encode("SASH.ALLOW", "shop", "ENTRY", "user", fmt.Sprint(i))
	}
	return all
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
	const connections = 20
	var peers []*peer
	for range connections {
		peers = append(peers, p.connect(t))
		peers[len(peers)-1].send(allows(60))
	}
	reach(connections + maxGoroutines/2)
	peers = append(peers, p.connectFrom(t, 2))
	peers[connections].send(allows(60))
	reach(connections + maxGoroutines/2 + 60)
	close(g.open)
	for _, c := range peers {
		c.gets(slices.Repeat([]string{"[allowed "}, 60)...)
	}
}

// A store that hangs is waited for no longer than the timeout, for all commands of a pipeline at once.
func TestAStoreThatHangsIsNotWaitedFor(t *testing.T) {
	p, g := openGate(t, 1000, 50*time.Millisecond)
	c := p.connect(t)
	c.send(allows(20) + encode("PING"))
	c.gets(append(slices.Repeat([]string{"-SASHSTORE budget: the store did not answer"}, 20), "PONG")...)
	if g.most != 20 {
		t.Errorf("%d decisions were under way at once, want all 20", g.most)
	}
}
