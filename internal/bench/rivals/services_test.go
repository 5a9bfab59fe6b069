package rivals

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// A ruled service admits as many calls of an entry as its rule has units, and calls without a rule, as Envoy's does.
type ruled struct {
	pb.UnimplementedRateLimitServiceServer
	units map[string]int // by the entry's key

	mu   sync.Mutex
	used map[string]int
}

// serveRules serves what rules has and returns the address.
func serveRules(t *testing.T) string {
	t.Helper()
	service := &ruled{units: map[string]int{}, used: map[string]int{}}
	for line := range strings.Lines(rules()) {
		_, rule, found := strings.Cut(line, `- {key: "`)
		if !found {
			continue
		}
		key, rest, _ := strings.Cut(rule, `"`)
		_, units, _ := strings.Cut(strings.TrimRight(rest, "}\n"), "requests_per_unit: ")
		var err error
		if service.units[key], err = strconv.Atoi(units); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(s, service)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return listener.Addr().String()
}

func (s *ruled) ShouldRateLimit(_ context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	entry := r.GetDescriptors()[0].GetEntries()[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	of := entry.GetKey() + "=" + entry.GetValue()
	code := pb.RateLimitResponse_OK
	if units, limited := s.units[entry.GetKey()]; limited && s.used[of] >= units {
		code = pb.RateLimitResponse_OVER_LIMIT
	} else {
		s.used[of]++
	}
	return &pb.RateLimitResponse{OverallCode: code}, nil
}

// Each limit that is measured has one rule.
func TestRules(t *testing.T) {
	const want = `domain: bench
descriptors:
  - {key: "50 in 1h0m0s", rate_limit: {unit: hour, requests_per_unit: 50}}
  - {key: "100 in 1s", rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: "10000 in 1m0s", rate_limit: {unit: minute, requests_per_unit: 10000}}
  - {key: "20000000 in 1s", rate_limit: {unit: second, requests_per_unit: 20000000}}
`
	if got := rules(); got != want {
		t.Errorf("the rules are\n%s\nwant\n%s", got, want)
	}
}
