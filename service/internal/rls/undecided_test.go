package rls

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

type rawCodec struct{ encoding.Codec }

func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (rawCodec) Name() string                    { return "proto" }

func invalid(t *testing.T, r *stats.Registry) float64 {
	t.Helper()
	return counter(t, r, "sash_requests_total", "invalid")
}

// counter returns the counter of a name whose label has a value.
func counter(t *testing.T, r *stats.Registry, name, value string) (n float64) {
	t.Helper()
	families := servertest.Must(r.Prometheus.Gather())(t)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == value {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A fail-open Envoy admits what is not decided, so each such call is counted, whatever is wrong with it.
func TestEveryWrongCallIsCounted(t *testing.T) {
	counted := stats.New(nil)
	w := begin(t, text, &Options{Stats: counted})
	many := request(strings.Split(strings.Repeat("ip=a,", maxDescriptors), ",")...)
	raw := func(method string, message []byte) error {
		var reply []byte
		return w.conn.Invoke(t.Context(), method, &message, &reply, grpc.ForceCodec(rawCodec{}))
	}
	ask := func(req *pb.RateLimitRequest) error {
		_, err := w.client.ShouldRateLimit(t.Context(), req)
		return err
	}
	noUnit := request("ip=a")
	noUnit.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3}
	for i, tt := range []struct {
		what string
		call func() error
		code codes.Code
	}{
		{"no domain", func() error { return ask(&pb.RateLimitRequest{Descriptors: request("ip=a").Descriptors}) }, codes.InvalidArgument},
		{"no descriptors", func() error { return ask(&pb.RateLimitRequest{Domain: "d"}) }, codes.InvalidArgument},
		{"too many descriptors", func() error { return ask(many) }, codes.InvalidArgument},
		{"a limit without a unit", func() error { return ask(noUnit) }, codes.InvalidArgument},
		{"too large", func() error { return ask(request("ip=" + strings.Repeat("x", maxMessage))) }, codes.ResourceExhausted},
		{"not protobuf", func() error { return raw(pb.RateLimitService_ShouldRateLimit_FullMethodName, []byte("\xff\xff\xff")) }, codes.Internal},
		{"an old version", func() error { return raw("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", nil) }, codes.Unimplemented},
	} {
		if err := tt.call(); status.Code(err) != tt.code {
			t.Errorf("%s: %v, want %v", tt.what, err, tt.code)
		}
		w.says("the next call", request("free"), "OK: OK")
		servertest.Wait(t, tt.what+" is not counted", func() bool { return invalid(t, counted) > float64(i) }) // a call ends after its answer
		if got := invalid(t, counted); got != float64(i+1) {
			t.Errorf("%s: %v wrong calls are counted, want %d", tt.what, got, i+1)
		}
	}
}

// What ends a request without a decision has a code in gRPC, and a status at /json.
func TestFailuresHaveTheirCodes(t *testing.T) {
	s := New(nil, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx    context.Context
		err    error
		code   codes.Code
		status int
	}{
		{t.Context(), config.ErrNone, codes.Unavailable, http.StatusServiceUnavailable},
		{t.Context(), sash.ErrInvalidLimit, codes.InvalidArgument, http.StatusBadRequest},
		{gone, sash.ErrUnavailable, codes.Canceled, http.StatusServiceUnavailable},
		{t.Context(), driver.ErrRejected, codes.Unavailable, http.StatusServiceUnavailable},
	} {
		code := status.Code(s.failure(c.ctx, c.err, false))
		if code != c.code || statuses[code] != c.status {
			t.Errorf("%v: %v and %d, want %v and %d", c.err, code, statuses[code], c.code, c.status)
		}
	}
	// A store that goes down between the steps of a request keeps what it charged before.
	down := fmt.Errorf("%w: %w", sash.ErrUnavailable, failover.ErrDown)
	for several, want := range map[bool]string{false: "nothing was charged", true: "is not known"} {
		if err := s.failure(t.Context(), down, several); !strings.Contains(err.Error(), want) {
			t.Errorf("several %v: %v", several, err)
		}
	}
	for code, want := range map[codes.Code]int{codes.Unauthenticated: 401, codes.PermissionDenied: 403, codes.DeadlineExceeded: 504, codes.Internal: 500} {
		if got := statuses[code]; got != want {
			t.Errorf("%v: %d, want %d", code, got, want)
		}
	}
}
