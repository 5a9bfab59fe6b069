package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

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
