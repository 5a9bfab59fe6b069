//go:build original

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// TestRecordOriginal writes the files in testdata/original: what Envoy's service, the binary that RATELIMIT names, of the
// version that RATELIMIT_VERSION names, has at /metrics after the requests, at /rlconfig, and at /json.
//
//	RATELIMIT=/path/to/ratelimit RATELIMIT_VERSION=v… go test -tags original -run TestRecordOriginal ./service/cmd/sash
func TestRecordOriginal(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/rl/config/config.yaml", string(readFile(t, "testdata/original/config.yaml")))
	http, grpc, debug, prometheus := freeAddress(t, 1), freeAddress(t, 1), freeAddress(t, 1), freeAddress(t, 1)
	cmd := exec.Command(os.Getenv("RATELIMIT"))
	cmd.Env = envoysPorts(redistest.Start(t), "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+prometheus,
		"RUNTIME_ROOT="+root,
		"RUNTIME_SUBDIRECTORY=rl", "RUNTIME_WATCH_ROOT=false", "STATS_FLUSH_INTERVAL=1s",
		"PORT="+portOf(http), "GRPC_PORT="+portOf(grpc), "DEBUG_PORT="+portOf(debug))
	start(t, cmd).ready("ratelimit", func() bool {
		return exec.Command("curl", "-sf",
			"http://"+http+"/healthcheck").Run() == nil
	})
	askAll(t, (&service{grpc: grpc}).dial(t))
	time.Sleep(3 * time.Second) // more than a flush
	_, dumped := get(t, "http://"+debug+"/rlconfig")
	put(t, "testdata/original/rlconfig.txt", sorted(dumped))
	put(t, "testdata/original/json.txt", jsonAnswers(t, "http://"+http+"/json"))
	_, seen := get(t, "http://"+prometheus+"/metrics")
	out := fmt.Sprintf("# github.com/envoyproxy/ratelimit %s, after the requests of original_test.go.\n", os.Getenv("RATELIMIT_VERSION"))
	for line := range strings.Lines(seen) {
		if name, _, _ := strings.Cut(line, "{"); len(series(line)) > 0 && !strings.HasSuffix(name, "_bucket") || strings.HasPrefix(line, "# TYPE ratelimit") {
			out += line
		}
	}
	put(t, "testdata/original/metrics.txt", out)
}
