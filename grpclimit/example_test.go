package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
	"example.com/sash/memstore"
)

// A service with 2 calls in 5 seconds and 300 in an hour for each client address.
func ExampleNewServerInterceptor() {
	// The example's clock stands still, so that it prints the same every time.
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return noon }})

	limiter, err := sash.New(store, nil, sash.Every(2, 5*time.Second), sash.PerHour(300))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := grpclimit.NewServerInterceptor(limiter, grpclimit.PeerAddress, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	healthpb.RegisterHealthServer(server, health.NewServer())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(lis)
	defer server.Stop()

	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for range 3 {
		_, err = client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	wait, _ := grpclimit.RetryAfter(err)
	fmt.Println("retry after", wait)
	for _, detail := range status.Convert(err).Details() {
		if failure, ok := detail.(*errdetails.QuotaFailure); ok {
			for _, v := range failure.GetViolations() {
				fmt.Println(v.GetQuotaId(), "is", v.GetDescription())
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// retry after 5s
	// 2/5s is 2 calls per 5 seconds
}

// For each client address 60 calls a minute, 2 of them for services that do not exist, and 5 streams at once, each for an
// hour at most. The store decides on all three in one step.
func ExampleNewServerLayers() {
	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "health"}, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := grpclimit.NewServerLayers(limiter, []grpclimit.Layer{
		{Name: "all", Key: grpclimit.PeerAddress},
		{
			Name: "guesses", Key: grpclimit.PeerAddress, Limits: []sash.Limit{sash.PerMinute(2)},
			Charge: grpclimit.Failures, // by code: OK gives the charge back, NotFound keeps it
		},
		{
			Name: "streams", Key: grpclimit.PeerAddress, Limits: []sash.Limit{sash.Every(5, time.Hour)},
			Charge: grpclimit.InFlight,
			Match:  func(call grpclimit.Call) bool { return call.Stream },
		},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	healthpb.RegisterHealthServer(server, health.NewServer())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(lis)
	defer server.Stop()

	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for _, service := range []string{"", "", "", "billing", "admin", "internal"} {
		_, err = client.Check(context.Background(), &healthpb.HealthCheckRequest{Service: service})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// OK
	// NotFound
	// NotFound
	// ResourceExhausted
}

// A client that keeps to a server's limit of 60 calls a minute for each method. On a store on Redis all
// instances of the client share it, and calls start in the order in which they were made. A call whose deadline is
// earlier than its turn fails at once, with a *sash.LimitedError.
func Example_client() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	wait := func(
		ctx context.Context, method string, req, res any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if err := limiter.Wait(ctx, sash.Key("api", method)); err != nil {
			return err
		}
		return invoke(ctx, method, req, res, cc, opts...)
	}
	conn, err := grpc.NewClient("dns:///api.example.com:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(wait))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
}
