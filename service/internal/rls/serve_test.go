package rls

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// A storeFunc is a store that does what a test wants.
type storeFunc func(context.Context, driver.Request) (driver.Answer, error)

func (f storeFunc) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	return f(ctx, req)
}

func TestFaultsEndOneRequestAndAreCounted(t *testing.T) {
	var logs bytes.Buffer
	counted := stats.New(nil)
	w := &world{t: t}
	store := memstore.New(nil)
	w.serve(text, storeFunc(func(ctx context.Context, req driver.Request) (driver.Answer, error) {
		if strings.Contains(req.Key, "evil") {
			panic("a fault")
		}
		return store.Decide(ctx, req)
	}), &Options{Stats: counted, Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if _, err := w.client.ShouldRateLimit(t.Context(), request("ip=evil")); status.Code(err) != codes.Internal {
		t.Errorf("error %v", err)
	}
	w.says("it still answers", request("ip=a"), "OK: OK 3/MINUTE 2 left 1m0s")
	if counted.Service.Panics.Load() != 1 || !strings.Contains(logs.String(), "a fault") {
		t.Errorf("%d counted; logs: %s", counted.Service.Panics.Load(), logs.String())
	}
}

func TestAStoreThatFails(t *testing.T) {
	w := &world{t: t}
	counted := stats.New(nil)
	w.serve(text, storeFunc(func(ctx context.Context, req driver.Request) (driver.Answer, error) {
		if strings.Contains(req.Key, "hung") {
			<-ctx.Done()
			return driver.Answer{}, ctx.Err()
		}
		return driver.Answer{}, errors.New("secret address")
	}), &Options{Timeout: 20 * time.Millisecond, Stats: counted})
	for value, want := range map[string]codes.Code{"hung": codes.Unavailable, "down": codes.Unavailable} {
		_, err := w.client.ShouldRateLimit(t.Context(), request("ip="+value))
		if status.Code(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", value, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := w.client.ShouldRateLimit(ctx, request("ip=hung")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller's deadline: %v", err)
	}
	w.says("a rule that is tried out stops nothing", request("shadow"), "OK: OK")
	if counted.Service.StoreErrors.Load() < 2 {
		t.Errorf("%d store errors counted", counted.Service.StoreErrors.Load())
	}
}

func TestHealthAndReflection(t *testing.T) {
	w := begin(t, text, nil)
	health := healthpb.NewHealthClient(w.conn)
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		res, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || res.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, res, err)
		}
	}
	stream, err := reflectionpb.NewServerReflectionClient(w.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range res.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	if got := strings.Join(names, " "); !strings.Contains(got, pb.RateLimitService_ServiceDesc.ServiceName) {
		t.Errorf("services %s", got)
	}
	_ = stream.CloseSend()
}

func TestAPortAtItsBoundEnds(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	store, full := memstore.New(nil), make(servertest.Lines, 1)
	w := &world{t: t, most: 1}
	w.serve(text, storeFunc(func(ctx context.Context, req driver.Request) (driver.Answer, error) {
		close(inside)
		<-finish
		return store.Decide(ctx, req)
	}), &Options{Log: slog.New(slog.NewTextHandler(full, nil))})
	answered := make(chan error, 1)
	go func() {
		_, err := w.client.ShouldRateLimit(context.Background(), request("ip=a"))
		answered <- err
	}()
	<-inside
	servertest.EndsAtItsBound(t, w.conn.Target(), full, w.stop, finish, answered)
}

func handler(t *testing.T) http.Handler {
	t.Helper()
	return New(deciderOf(t), nil)
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/json", strings.NewReader(body)))
	return rec
}

func TestJSON(t *testing.T) {
	h := handler(t)
	for _, tt := range []struct {
		what, body string
		status     int
		want       string
	}{
		{"allowed", `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}]}],"hitsAddend":3}`, 200, `"overallCode":"OK"`},
		{"refused", `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}`, 429, `"currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"}`},
		{"names as in the schema", `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"b"}],"hits_addend":"2"}],"hits_addend":1}`, 200, `"limitRemaining":1`},
		{"no domain", `{"descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}`, 400, "domain"},
		{"no descriptors", `{"domain":"d"}`, 400, "descriptor"},
		{"not JSON", `domain`, 400, "bad JSON"},
		{"an unknown field", `{"domain":"d","descriptor":[]}`, 400, "bad JSON"},
		{"not UTF-8", "{\"domain\":\"\xff\"}", 400, "UTF-8"},
		{"large", `{"domain":"` + strings.Repeat("x", 4<<20) + `"}`, 413, "too large"},
	} {
		rec := post(h, tt.body)
		got := strings.ReplaceAll(strings.ReplaceAll(rec.Body.String(), ": ", ":"), ", ", ",")
		if rec.Code != tt.status || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d %s, want %d and %s", tt.what, rec.Code, got, tt.status, tt.want)
		}
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/json", nil))
	if rec.Code != 400 {
		t.Errorf("GET without a body: %d", rec.Code)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}],"hitsAddend":"0","isNegativeHits":true}]}`)
	f.Add(`{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}],"limit":{"unit":"UNKNOWN","requestsPerUnit":4294967295,"unitMultiplier":7}}]}`)
	f.Add(`{"domain":"d","descriptors":[{"entries":[{"key":"both"}]},{"entries":[{"key":"both"}]}],"hitsAddend":4294967295}`)
	decider := servertest.Decider(f, memstore.New(nil), text)
	counted := stats.New(nil)
	h := New(decider, &Options{Access: servertest.Gate(f, everything), Stats: counted, Headers: &Headers{"a", "b", "c"}, Metadata: true})
	f.Fuzz(func(t *testing.T, body string) {
		began := time.Now()
		rec := post(h, body)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v: %q", took, body)
		}
		if rec.Code != 200 && rec.Code != 429 && rec.Code != 400 && rec.Code != 413 || counted.Service.Panics.Load() > 0 {
			t.Errorf("%d: %s", rec.Code, rec.Body)
		}
	})
}
