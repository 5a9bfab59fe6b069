package grpclimit_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/grpclimit"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// A clock is that of a store in memory.
type clock struct{ *judge.Clock }

func newClock() clock {
	return clock{judge.NewClock(time.Date(2026, time.March, 1, 12, 10, 0, 0, time.UTC))}
}

// must returns what gives a test the value, and ends the test if there is an error: must(sash.New(store, nil, limit))(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newLimiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, nil, limits...))(t)
}

func onServer(t testing.TB, l *sash.Limiter, key grpclimit.KeyFunc, opts *grpclimit.ServerOptions) *grpclimit.ServerInterceptor {
	t.Helper()
	return must(grpclimit.NewServerInterceptor(l, key, opts))(t)
}

func onLayers(t testing.TB, l *sash.Limiter, opts *grpclimit.ServerOptions, layers ...grpclimit.Layer) *grpclimit.ServerInterceptor {
	t.Helper()
	return must(grpclimit.NewServerLayers(l, layers, opts))(t)
}

// A service returns the payload of a request.
type service struct {
	pb.UnimplementedTestServiceServer
	unary func(context.Context) error // nil succeeds
	mu    sync.Mutex
	calls int
}

func (s *service) served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *service) UnaryCall(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.SimpleResponse{Payload: req.GetPayload()}, nil
}

// limited are the server options for an interceptor on all calls.
func limited(s *grpclimit.ServerInterceptor) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

// dial starts a server in memory and returns a client of it.
func dial(t testing.TB, impl pb.TestServiceServer, server []grpc.ServerOption) pb.TestServiceClient {
	t.Helper()
	lis, s := bufconn.Listen(1<<16), grpc.NewServer(server...)
	pb.RegisterTestServiceServer(s, impl)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		<-done
	})
	return pb.NewTestServiceClient(conn)
}

// call makes one unary call that gives up when nothing answers.
func call(ctx context.Context, client pb.TestServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := client.UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("code %v, want %v: %v", got, want, err)
	}
}

func wantRetryAfter(t testing.TB, err error, want time.Duration) {
	t.Helper()
	if got, ok := grpclimit.RetryAfter(err); !ok || got != want {
		t.Errorf("retry after %v, %v; want %v: %v", got, ok, want, err)
	}
}

// violations returns what a real client finds in an error's details.
func violations(t testing.TB, err error) []*errdetails.QuotaFailure_Violation {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if failure, ok := detail.(*errdetails.QuotaFailure); ok {
			return failure.GetViolations()
		}
	}
	t.Fatalf("no QuotaFailure in %v", err)
	return nil
}

// hanging returns a store whose calls wait until their context ends, and send on calls, which may be nil.
func hanging(calls chan<- struct{}) driver.Store {
	store := storetest.NewFaulty(memstore.New(nil))
	store.Hang(calls)
	return store
}

func (c clock) store() *memstore.Store { return memstore.New(&memstore.Options{Now: c.Now}) }

// wantPanic calls f, which has to panic with a value.
func wantPanic(t testing.TB, want any, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != want {
			t.Errorf("recovered %v, want %v", p, want)
		}
	}()
	f()
}
