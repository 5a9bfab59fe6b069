package faulttest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A proxy stands between two ends of a connection and can spoil what passes.
type proxy struct{ *toxiproxy.Proxy }

// through returns a proxy for the server at an address.
func through(t testing.TB, addr string) proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", addr)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return proxy{p}
}

// A spoil is a fault of the network. Downstream is from the server to who asked.
type spoil struct {
	kind       string
	upstream   bool
	attributes map[string]int
}

// add spoils some of the connections that there are and that come, each with the given probability.
func (p proxy) add(t testing.TB, s spoil, probability float64) {
	t.Helper()
	direction := "downstream"
	if s.upstream {
		direction = "upstream"
	}
	text, err := json.Marshal(map[string]any{"name": s.kind, "type": s.kind, "stream": direction, "attributes": s.attributes, "toxicity": probability})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		t.Fatal(err)
	}
}

// heal spoils nothing any more.
func (p proxy) heal(t testing.TB) {
	t.Helper()
	p.Toxics.ResetToxics(t.Context())
}
