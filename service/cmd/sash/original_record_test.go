//go:build original

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// TestRecordOriginal writes the files in testdata/original: what Envoy's service, the binary that RATELIMIT names, of the
// version that RATELIMIT_VERSION names, has at /metrics after the requests, at /rlconfig, and at /json.
//
//	RATELIMIT=/path/to/ratelimit RATELIMIT_VERSION=v… go test -tags original -run TestRecordOriginal ./service/cmd/sash
func TestRecordOriginal(t *testing.T) {
	root := t.TempDir()
	text := readFile(t, "testdata/original/config.yaml")
	if err := os.MkdirAll(filepath.Join(root, "rl", "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "rl", "config", "config.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	ports := make([]string, 4)
	for i := range ports {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		_ = l.Close()
	}
	redis := redistest.Start(t)
	cmd := exec.Command(os.Getenv("RATELIMIT"))
	cmd.Env = []string{"USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:" + ports[0], "RUNTIME_ROOT=" + root,
		"RUNTIME_SUBDIRECTORY=rl", "RUNTIME_WATCH_ROOT=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(), "STATS_FLUSH_INTERVAL=1s",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=" + ports[1], "GRPC_PORT=" + ports[2], "DEBUG_PORT=" + ports[3]}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn, err := grpc.NewClient("127.0.0.1:"+ports[2], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	askAll(t, pb.NewRateLimitServiceClient(conn))
	var seen string
	servertest.Wait(t, "the counters are not flushed", func() bool {
		before := strings.Count(seen, "ratelimit_service_")
		time.Sleep(1500 * time.Millisecond) // more than a flush
		_, seen = get(t, "http://127.0.0.1:"+ports[0]+"/metrics")
		return strings.Contains(seen, "total_hits") && strings.Count(seen, "ratelimit_service_") == before
	})
	_, dumped := get(t, "http://127.0.0.1:"+ports[3]+"/rlconfig")
	if err := os.WriteFile("testdata/original/rlconfig.txt", []byte(sorted(dumped)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/original/json.txt", []byte(jsonAnswers(t, "http://127.0.0.1:"+ports[1]+"/json")), 0o644); err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("# github.com/envoyproxy/ratelimit %s, after the requests of original_test.go.\n", os.Getenv("RATELIMIT_VERSION"))
	for line := range strings.Lines(seen) {
		if name, _, _ := strings.Cut(line, "{"); len(series(line)) > 0 && !strings.HasSuffix(name, "_bucket") || strings.HasPrefix(line, "# TYPE ratelimit") {
			out += line
		}
	}
	if err := os.WriteFile("testdata/original/metrics.txt", []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
