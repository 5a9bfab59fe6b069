package roundtrip

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
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
	"example.com/sash/failover"
	"example.com/sash/grpclimit"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
	"example.com/sash/storetest"
)

var errDown = errors.New("connection reset by peer")

// guard returns a failover store over a store, as one of two instances.
func guard(t *testing.T, inner driver.Store, mode failover.Mode) *failover.Store {
	t.Helper()
	store, err := failover.New(inner, &failover.Options{
		Modes:     failover.Modes{Rules: []failover.Rule{{Mode: mode}}},
		Local:     memstore.New(nil),
		Instances: func() int { return 2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends the goroutine that writes the backlog
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = store.Close(over)
	})
	return store
}

// The client's own store can fail too: the client goes on over its share, and the API refuses nothing.
func TestAClientThatDecidesLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(newStore())
		a := newAPI(t, newStore(), arrangement{limits: []sash.Limit{sash.PerMinute(60)}, opts: httplimit.Options{Dialect: httplimit.NoFields}})
		client := newClient(t, guard(t, inner, failover.Local), a, sash.PerMinute(60))
		inner.Fail(errDown)
		stream(t, []*outgoing.Transport{client}, 1, lasts)
		if n := a.answered(http.StatusOK); n < 300*90/100 || n > 300+30 {
			t.Errorf("%d requests were sent in ten minutes, of 300 in its half", n)
		}
		if n := a.answered(http.StatusTooManyRequests); n > 0 {
			t.Errorf("the API refused %d requests", n)
		}
	})
}

// A gRPC server that decides locally refuses with a time after which it admits, and a closed one is Unavailable.
func TestAGRPCServerWhoseStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[failover.Mode]codes.Code{
			failover.Local: codes.ResourceExhausted, failover.Open: codes.OK, failover.Closed: codes.Unavailable,
		} {
			inner := storetest.NewFaulty(newStore())
			inner.Fail(errDown)
			call := serveGRPC(t, guard(t, inner, mode), sash.PerMinute(10))
			var last error
			for range 6 { // its half of 10, and one more
				last = call()
			}
			wait, ok := grpclimit.RetryAfter(last)
			if status.Code(last) != want || ok != (want != codes.OK) {
				t.Errorf("%v: %v, want %v; retry after %v", mode, last, want, wait)
			}
			if mode != failover.Local {
				continue
			}
			time.Sleep(wait - time.Microsecond)
			if err := call(); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a microsecond early: %v", err)
			}
			time.Sleep(time.Microsecond)
			if err := call(); err != nil {
				t.Errorf("at the retry time of the refusal: %v", err)
			}
		}
	})
}

// Behind a store that is open, a response does not report limits that nothing counts, and a login admits no
// guesses.
func TestAnOpenStoreReportsNoLimitsAndOpensNoLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := storetest.NewFaulty(newStore())
		inner.Fail(errDown)
		limiter, err := sash.New(guard(t, inner, failover.Open), nil, sash.PerMinute(5))
		if err != nil {
			t.Fatal(err)
		}
		for charge, want := range map[httplimit.Charge]int{
			httplimit.Requests: http.StatusOK,
			httplimit.Failures: http.StatusServiceUnavailable,
		} {
			limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{{Key: httplimit.PeerAddress, Charge: charge}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			reached := false
			handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if w.Code != want || reached != (want == http.StatusOK) || w.Header().Get("RateLimit") != "" {
				t.Errorf("%v: %d, %v, the handler ran: %v", charge, w.Code, w.Header(), reached)
			}
		}
	})
}

// serveGRPC starts a server with one limit for all clients, and returns a function that calls it. Both end with
// the test.
func serveGRPC(t *testing.T, store driver.Store, limits ...sash.Limit) (call func() error) {
	t.Helper()
	limiter, err := sash.New(store, nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	everybody := func(grpclimit.Call) (string, error) { return "client", nil }
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
