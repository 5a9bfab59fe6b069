package rls

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

func as(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func raised(req *pb.RateLimitRequest) *pb.RateLimitRequest {
	req.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1_000_000, Unit: typev3.RateLimitUnit_MINUTE}
	return req
}

func givenBack(req *pb.RateLimitRequest) *pb.RateLimitRequest {
	req.Descriptors[0].IsNegativeHits = true
	return req
}

// Without a file nobody resets another's use or raises a limit, over gRPC or as JSON, and everyone is limited.
func TestByDefaultNobodyGivesBackOrSetsALimit(t *testing.T) {
	none := servertest.Must(access.Open("", &access.Options{Log: slog.New(slog.DiscardHandler)}))(t)
	w := begin(t, text, &Options{Access: none})
	w.says("decide", request("ip=a"), "OK: OK 3/MINUTE 2 left 1m0s")
	for what, req := range map[string]*pb.RateLimitRequest{
		"a refund": givenBack(request("ip=a")), "a limit": raised(request("ip=a")), "both, hidden": givenBack(raised(request("ip=a"))),
	} {
		req.Descriptors = append([]*common.RateLimitDescriptor{descriptor("ip=b")}, req.Descriptors...) // not only the first counts
		_, err := w.client.ShouldRateLimit(as(t.Context(), "any"), req)
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "sash serve with --access FILE") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.says("nothing was given back, charged or raised", request("ip=a"), "OK: OK 3/MINUTE 1 left 1m0s")
	w.says("nor to the other", request("ip=b"), "OK: OK 3/MINUTE 2 left 1m0s")
	body := `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}],"isNegativeHits":true}]}`
	if rec := post(New(servertest.Decider(t, memstore.New(nil), text), &Options{Access: none}), body); rec.Code != http.StatusForbidden {
		t.Errorf("as JSON: %d %s", rec.Code, rec.Body)
	}
}

// Load balancers check health without credentials. Reflection, which describes the service and its messages, is for clients.
func TestHealthIsOpenAndReflectionIsNot(t *testing.T) {
	w := begin(t, text, &Options{Access: servertest.Gate(t, "clients: [{name: a, tokens: ["+digest("a")+"], allow: [decide], domains: [e]}, "+
		"{name: b, tokens: ["+digest("b")+"], allow: [override]}]")})
	checks := healthpb.NewHealthClient(w.conn)
	if res, err := checks.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || res.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", res, err)
	}
	ctx := t.Context()
	watch, err := checks.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream of health: %v", err)
	}
	list := func(ctx context.Context) error {
		stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.CloseSend() }()
		// Of a stream that has ended Send may return EOF: Recv has the status.
		_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		_, err = stream.Recv()
		return err
	}
	if _, err := w.client.ShouldRateLimit(ctx, request("ip=a")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a decision without a token: %v", err)
	}
	if err := list(ctx); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token: %v", err)
	}
	if err := list(as(ctx, "b")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("reflection without the right to decide: %v", err)
	}
	if err := list(as(ctx, "a")); err != nil {
		t.Errorf("reflection with one: %v", err)
	}
}

// A right is no licence to keep the store from others: refunds take several calls each, and limits may be decided one
// after the other.
func TestRefundsAndLimitsOfARequestAreBounded(t *testing.T) {
	w := begin(t, text, nil)
	for what, of := range map[string]struct {
		with func(*pb.RateLimitRequest) *pb.RateLimitRequest
		most int
	}{"refunds": {givenBack, decide.MaxRefunds}, "limits": {raised, maxRequestLimits}} {
		for _, n := range []int{of.most, of.most + 1} {
			req := request("ip=x")
			for i := range n {
				one := of.with(request(fmt.Sprint("ip=", i)))
				req.Descriptors = append(req.Descriptors, one.Descriptors...)
			}
			_, err := w.client.ShouldRateLimit(t.Context(), req)
			if status.Code(err) == codes.InvalidArgument != (n > of.most) {
				t.Errorf("%d %s: %v", n, what, err)
			}
		}
	}
}
