package roundtrip

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/grpclimit"
)

// serveGRPC starts a server with one limit for all clients, and returns a function that calls it. Both end with
// the test.
func serveGRPC(t *testing.T, store driver.Store, limits ...sash.Limit) (call func() error) {
	t.Helper()
	limiter, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	everybody := func(context.Context, grpclimit.Call) (string, error) { return "client", nil }
	limit, err := grpclimit.NewServerInterceptor(limiter, everybody, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary))
	healthpb.RegisterHealthServer(server, health.NewServer())
	lis := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := healthpb.NewHealthClient(conn)
	return func() error {
		_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
}

// A client that waits for its RetryInfo is admitted then, also with several limits, and never waits longer than
// necessary: RetryInfo is exact.
func TestAGRPCClientThatWaitsIsNeverRefusedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := serveGRPC(t, newStore(), sash.Every(5, 5*time.Second), sash.PerMinute(40))
		start := time.Now()
		for served := 0; served < 400; {
			err := call()
			if err == nil {
				served++
				continue
			}
			wait, ok := grpclimit.RetryAfter(err)
			if status.Code(err) != codes.ResourceExhausted || !ok {
				t.Fatal(err)
			}
			time.Sleep(wait)
			if err := call(); err != nil {
				t.Fatalf("refused again, after %v: %v", wait, err)
			}
			served++
		}
		// 400 calls at 40 a minute, the last of them 35 s into the tenth minute.
		if took := time.Since(start); took != 9*time.Minute+35*time.Second {
			t.Errorf("400 calls took %v, want 9m35s", took)
		}
	})
}
