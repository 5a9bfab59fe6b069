//go:build linux

package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/service/internal/servertest"
)

// With 100 the attack is the one that took 1.2 GB before calls were bounded.
var strangers = flag.Int("strangers", 5, "how many connections open a thousand half-sent calls each")

// memory returns the memory of the service's process in MiB: VmRSS, what it has, or VmHWM, the most that it had.
func (p *service) memory(t *testing.T, which string) int {
	t.Helper()
	text := readFile(t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	kilobytes, err := strconv.Atoi(regexp.MustCompile(which + `:\s*(\d+)`).FindStringSubmatch(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes >> 10
}

// Calls whose messages never come end after ten seconds; meanwhile there are at most 10,000, and others are answered.
func TestHalfSentCallsTakeBoundedMemory(t *testing.T) {
	t.Parallel() // it waits for ten seconds
	p := spawn(t, nil)
	before := p.memory(t, "VmRSS")
	var all []*servertest.Frames
	for range *strangers {
		f := servertest.DialFrames(t, p.grpc)
		all = append(all, f)
		for range 1000 {
			if _, err := f.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := p.asks(t, "demo")("remote_address=a"); err != nil {
		t.Errorf("a call meanwhile fails: %v", err)
	}
	servertest.Wait(t, "half-sent calls have not ended", func() bool {
		ended := 0
		for _, f := range all {
			ended += f.Ended()
		}
		return ended >= len(all)*1000
	})
	peak := p.memory(t, "VmHWM")
	t.Logf("%d half-sent calls; %d MiB before, %d at most, %d after", len(all)*1000, before, peak, p.memory(t, "VmRSS"))
	if peak > before+500 {
		t.Error("that is too much")
	}
}

// With 256 descriptors, clients that connect and do nothing hold both data ports at their bounds. The admin port is
// not affected, and the data ports answer everyone else.
func TestIdleConnectionsHoldNoPort(t *testing.T) {
	p := run(t, exec.Command("sh", append([]string{"-c", `ulimit -n 256; exec "$0" serve "$@"`, binary}, freePorts...)...))
	for i := range 300 {
		for _, addr := range []string{strings.TrimPrefix(p.url, "http://"), p.grpc} {
			conn, err := net.DialTimeout("tcp", addr, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if i%2 == 0 {
				_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") // and then idle
			}
		}
	}
	for range 60 { // HTTP/2 takes more than a connection to be established
		servertest.DialFrames(t, p.grpc)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	for _, url := range []string{p.admin + "/metrics", p.url + "/healthz", p.admin + "/metrics"} {
		if res, _ := sendBy(t, client, "GET", url, ""); res.StatusCode != 200 {
			t.Errorf("%s: %s", url, res.Status)
		}
	}
	if _, err := p.asks(t, "demo")("remote_address=a"); err != nil {
		t.Errorf("a gRPC call fails: %v", err)
	}
}
