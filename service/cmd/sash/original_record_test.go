//go:build original

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash/internal/redistest"
)

// runOriginal runs Envoy's service, the binary that RATELIMIT names, with the configuration of testdata/original and variables. It
// returns its addresses.
func runOriginal(t *testing.T, more ...string) (http, grpc, debug, prometheus string) {
	t.Helper()
	http, grpc, debug, prometheus = freeAddress(t, 1), freeAddress(t, 1), freeAddress(t, 1), freeAddress(t, 1)
	cmd := exec.Command(os.Getenv("RATELIMIT"))
	cmd.Env = envoysPorts(redistest.Start(t), append(more, "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+prometheus,
		"STATS_FLUSH_INTERVAL=1s", "PORT="+portOf(http), "GRPC_PORT="+portOf(grpc), "DEBUG_PORT="+portOf(debug))...)
	start(t, cmd).ready("ratelimit", func() bool { return exec.Command("curl", "-sf", "http://"+http+"/healthcheck").Run() == nil })
	return http, grpc, debug, prometheus
}

func originalFiles(t *testing.T) []string {
	t.Helper()
	root := t.TempDir()
	put(t, root+"/rl/config/config.yaml", string(readFile(t, "testdata/original/config.yaml")))
	return []string{"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=rl", "RUNTIME_WATCH_ROOT=false"}
}

// TestRecordOriginal writes the files in testdata/original: what Envoy's service, of the version that RATELIMIT_VERSION names, has at
// /metrics after the requests, at /rlconfig, and at /json. make test-original runs it.
func TestRecordOriginal(t *testing.T) {
	http, grpc, debug, prometheus := runOriginal(t, originalFiles(t)...)
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

// Random requests get the same answers from Envoy's service and from Sash, if compatible: codes, statuses and errors. The windows are
// hours and days, so that both services are in the same one.
func TestRandomRequestsBesideTheOriginal(t *testing.T) {
	values := []string{"", "x", "gold", "a.example", "/api/v1", "a|b", "v1.2", "10.0.0.1", "t."}
	for _, mode := range []string{"", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "LOCAL_CACHE_SIZE_IN_BYTES=1000000",
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true LOCAL_CACHE_SIZE_IN_BYTES=1000000"} {
		env := append(originalFiles(t), strings.Fields(mode)...)
		_, grpc, _, _ := runOriginal(t, env...)
		there := (&service{grpc: grpc}).dial(t)
		here := serveIn(t, envoysPorts(redistest.Start(t), append(env, "SASH_ENVOY_COMPATIBLE=true")...), "--budget", "2s").dial(t)
		random, codes, differ := rand.New(rand.NewPCG(1, uint64(len(mode)))), make(map[string]int), 0
		for i := range 6000 {
			req := &pb.RateLimitRequest{Domain: "edge", HitsAddend: uint32(random.IntN(4))}
			for range 1 + random.IntN(4) {
				key := []string{"user", "plan", "host", "path", "free", "soft", "address", "tenant", "a", "none"}[random.IntN(10)]
				value := values[random.IntN(len(values))]
				if random.IntN(3) == 0 {
					value = fmt.Sprint("v", random.IntN(50)) // few requests each
				}
				text := key + "=" + value
				if key == "a" {
					text += " b=" + value + [3]string{"", " c=1", " d=2"}[random.IntN(3)]
				}
				d := descriptors("", text).Descriptors[0]
				if random.IntN(4) == 0 {
					d.HitsAddend = wrapperspb.UInt64([]uint64{0, 1, 7, 120}[random.IntN(4)])
				}
				if random.IntN(20) == 0 {
					unit := []typev3.RateLimitUnit{typev3.RateLimitUnit_HOUR, typev3.RateLimitUnit_DAY}[random.IntN(2)]
					d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(random.IntN(6)), Unit: unit}
				}
				req.Descriptors = append(req.Descriptors, d)
				if random.IntN(9) == 0 { // the subject again
					hits := wrapperspb.UInt64(random.Uint64N(4))
					req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{Entries: d.Entries, Limit: d.Limit, HitsAddend: hits})
				}
			}
			first, err := there.ShouldRateLimit(t.Context(), req)
			second, err2 := here.ShouldRateLimit(t.Context(), req)
			for _, res := range []*pb.RateLimitResponse{first, second} {
				for _, st := range res.GetStatuses() {
					if st.DurationUntilReset != nil { // a second can end between the two
						st.DurationUntilReset = &durationpb.Duration{Seconds: (st.DurationUntilReset.Seconds + 2) / 3600}
					}
				}
			}
			codes[first.GetOverallCode().String()]++
			if (err != nil) != (err2 != nil) || first.String() != second.String() {
				if differ++; differ < 10 {
					t.Errorf("%s, request %d, %v:\n%v, %v there, and\n%v, %v here", mode, i, req, first, err, second, err2)
				}
			}
		}
		t.Logf("%q: %v, and %d of 6000 differ", mode, codes, differ)
	}
}
