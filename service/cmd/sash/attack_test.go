package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/service/internal/servertest"
)

var strangers = flag.Int("strangers", 5, "how many connections the attacks on gRPC open")

// memory returns the memory of the service's process in MiB: VmRSS, what it has, or VmHWM, the most that it had.
func (p *service) memory(t *testing.T, which string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip(err)
	}
	kilobytes, err := strconv.Atoi(regexp.MustCompile(which + `:\s*(\d+)`).FindStringSubmatch(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes >> 10
}

// Calls whose messages never come end after ten seconds; meanwhile there are at most 10,000.
func TestHalfSentCallsTakeBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than ten seconds")
	}
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
	ended := func() (n int) {
		for _, f := range all {
			n += f.Ended()
		}
		return n
	}
	early := ended()
	l, began := &load{key: "a"}, time.Now()
	l.once(t, p)
	took := time.Since(began)
	if l.answered.Load() != 1 {
		t.Errorf("a call meanwhile fails: %v", *l.failed.Load())
	}
	for deadline := time.Now().Add(30 * time.Second); ended() < len(all)*1000; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d half-sent calls have ended", ended(), len(all)*1000)
		}
	}
	peak := p.memory(t, "VmHWM")
	t.Logf("%d half-sent calls, %d of them ended at once; %d MiB before, %d at most, %d after; a call meanwhile took %v",
		len(all)*1000, early, before, peak, p.memory(t, "VmRSS"), took)
	if peak > before+500 {
		t.Error("that is too much")
	}
}

// With 256 descriptors, clients that connect and do nothing hold both data ports at their bounds. The admin port is
// not affected, and the data ports answer everyone else.
func TestIdleConnectionsHoldNoPort(t *testing.T) {
	p := spawnBy(t, []string{"sh", "-c", `ulimit -n 256; exec "$0" "$@"`}, nil)
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
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	for _, url := range []string{p.admin + "/metrics", p.url + "/healthz", p.admin + "/metrics"} {
		began := time.Now()
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		t.Logf("%s: %s after %v", url, res.Status, time.Since(began))
	}
	began := time.Now()
	l := &load{key: "a"}
	if l.once(t, p); l.answered.Load() != 1 {
		t.Errorf("a gRPC call fails: %v", *l.failed.Load())
	}
	t.Logf("a gRPC call: after %v", time.Since(began))
}
