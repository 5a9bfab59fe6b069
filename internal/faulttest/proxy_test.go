package faulttest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A proxy stands between two ends of a connection and can spoil what passes.
type proxy struct{ *toxiproxy.Proxy }

// through returns a proxy for the server at an address.
func through(t testing.TB, addr string) *proxy {
	t.Helper()
	p := &proxy{}
	for range 20 {
		// Below the ports of outgoing connections: no other process takes it between two runs of the proxy.
		if err := p.open(t, fmt.Sprintf("127.0.0.1:%d", 22_000+rand.IntN(10_000)), addr); err == nil {
			break
		}
	}
	if !p.Enabled {
		t.Fatal("no port is free for a proxy")
	}
	t.Cleanup(func() { p.Stop() })
	return p
}

// open starts to listen, with nothing spoiled.
func (p *proxy) open(t testing.TB, listen, upstream string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p.Proxy = toxiproxy.NewProxy(server, t.Name(), listen, upstream)
	return p.Start()
}

// A spoil is a fault of the network. Downstream is from the server to who asked.
type spoil struct {
	kind       string
	upstream   bool
	attributes map[string]int
}

// add spoils some of the connections that there are and that come, each with the given probability.
func (p *proxy) add(t testing.TB, s spoil, probability float64) {
	t.Helper()
	direction := "downstream"
	if s.upstream {
		direction = "upstream"
	}
	text, err := json.Marshal(map[string]any{"name": s.kind + " " + direction, "type": s.kind, "stream": direction, "attributes": s.attributes, "toxicity": probability})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
}

// heal spoils nothing any more. It ends all connections and begins anew: a toxiproxy that takes a spoil off a
// connection while an end of it leaves can wait forever.
func (p *proxy) heal(t testing.TB) {
	t.Helper()
	p.Stop()
	await(t, "the proxy listens again", func() bool { return p.open(t, p.Listen, p.Upstream) == nil })
}
