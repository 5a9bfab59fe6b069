package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/sash/service/internal/stats"
)

// udp returns a statsd server on loopback.
func udp(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.UDPConn).SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	return conn
}

// receive reads packets until it has n lines.
func receive(t *testing.T, conn net.PacketConn, n int) []string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var lines []string
	buffer := make([]byte, 1<<16)
	for len(lines) < n {
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%v, after %d lines", err, len(lines))
		}
		if size > udpPayload {
			t.Errorf("a packet of %d bytes", size)
		}
		for line := range strings.Lines(string(buffer[:size])) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestIncrementsAreSentUnderEnvoysNames(t *testing.T) {
	for _, tt := range []struct {
		dog   bool
		first string
	}{
		{false, "ratelimit.service.rate_limit.d.user.total_hits.__commit=a1_2.__team=edge:5|c"},
		{true, "ratelimit.service.rate_limit.d.user.total_hits:5|c|#commit:a1_2,team:edge"},
	} {
		server := udp(t)
		registry := stats.New(nil)
		p := newPusher(&Statsd{
			Network: "udp", Addr: server.LocalAddr().String(), Dog: tt.dog, Tags: []string{"commit:a1.2", "team:edge"},
		}, registry, slog.New(slog.DiscardHandler))
		registry.Rule("d.user").Total.Add(5)
		registry.Service.Calls.Add(1)
		p.push(t.Context())
		if got := receive(t, server, 2); !slices.Contains(got, tt.first) || !strings.HasPrefix(got[1], "ratelimit_server.ShouldRateLimit.total_requests") {
			t.Errorf("%q, want among them %s", got, tt.first)
		}
		registry.Rule("d.user").Over.Add(2)
		registry.Rule("d.user").Total.Add(2)
		p.push(t.Context())
		got := receive(t, server, 2)
		for i, want := range []string{"d.user.over_limit", "d.user.total_hits"} {
			if !strings.Contains(got[i], want) || !strings.Contains(got[i], ":2|c") {
				t.Errorf("the second round has %s, want 2 more of %s", got[i], want)
			}
		}
	}
}

func TestManyCountersAreSent(t *testing.T) {
	server := udp(t)
	registry := stats.New(nil)
	const many = 1000
	for i := range many {
		registry.Rule("d.rule_" + strconv.Itoa(i)).Total.Add(1)
	}
	p := newPusher(&Statsd{Network: "udp", Addr: server.LocalAddr().String()}, registry, slog.New(slog.DiscardHandler))
	p.push(t.Context())
	if got := slices.Compact(receive(t, server, many)); len(got) != many {
		t.Errorf("%d lines", len(got))
	}
}

// A statsd server over TCP that is away for a while misses nothing, and its absence is logged once.
func TestAServerThatComesLater(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	var log bytes.Buffer
	registry := stats.New(nil)
	p := newPusher(&Statsd{Network: "tcp", Addr: addr}, registry, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		registry.Rule("d.user").Total.Add(1)
		p.push(t.Context())
	}
	if n := strings.Count(log.String(), "do not reach"); n != 1 {
		t.Errorf("%d failures are logged: %s", n, log.String())
	}
	if err := testutil.GatherAndCompare(registry.Prometheus, strings.NewReader(`# HELP sash_export_failures_total Exports of traces or counters that failed.
# TYPE sash_export_failures_total counter
sash_export_failures_total{to="otlp"} 0
sash_export_failures_total{to="statsd"} 3
`), "sash_export_failures_total"); err != nil {
		t.Error(err)
	}
	if listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", addr); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	read := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			read <- fmt.Sprint(err)
			return
		}
		defer func() { _ = conn.Close() }()
		text, _ := io.ReadAll(conn)
		read <- string(text)
	}()
	p.push(t.Context())
	if got := <-read; got != "ratelimit.service.rate_limit.d.user.total_hits:3|c\n" {
		t.Errorf("the server reads %q", got)
	}
}
