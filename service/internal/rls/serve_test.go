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

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// A storeFunc is a store that does what a test wants.
type storeFunc func(context.Context, *driver.Op) error

func (storeFunc) Powers() driver.Powers { return 0 }

func (f storeFunc) Do(ctx context.Context, b *driver.Batch) error { return driver.OneByOne(ctx, b, f) }

func charge(ctx context.Context, store driver.Store, op *driver.Op) (err error) {
	op.Answer, err = driver.Decide(ctx, store, op.Request)
	return err
}

func TestFaultsEndOneRequestAndAreCounted(t *testing.T) {
	var logs bytes.Buffer
	counted := stats.New(nil)
	w := &world{t: t}
	store := memstore.New(nil)
	w.serve(text, storeFunc(func(ctx context.Context, op *driver.Op) error {
		if strings.Contains(op.Key, "evil") {
			panic("a fault")
		}
		return charge(ctx, store, op)
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
	w := &world{t: t, calls: &calls{within: 100 * time.Millisecond, most: maxCalls, half: maxHalf}}
	counted, store := stats.New(nil), storeFunc(func(ctx context.Context, op *driver.Op) error {
		if strings.Contains(op.Key, "hung") {
			<-ctx.Done()
			return ctx.Err()
		}
		return errors.New("secret address")
	})
	w.serve(text, store, &Options{Stats: counted})
	overHTTP := New(servertest.Decider(t, store, text), &Options{Timeout: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if res := post(overHTTP, `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"hung"}]}]}`); res.Code != http.StatusServiceUnavailable {
		t.Errorf("over HTTP: %d %s", res.Code, res.Body)
	}
	for _, value := range []string{"hung", "down"} {
		_, err := w.client.ShouldRateLimit(t.Context(), request("ip="+value))
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
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

// The empty name says that the process serves, the others that it is ready.
func TestHealthByName(t *testing.T) {
	closed, up, down := make(chan struct{}), healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	close(closed)
	unready := func(context.Context) error { return errors.New("no store") }
	for i, c := range []struct {
		checks      checks
		empty, name healthpb.HealthCheckResponse_ServingStatus
	}{{checks{}, up, up}, {checks{ready: unready}, up, down}, {checks{draining: closed}, down, down}, {checks{ended: closed}, down, down}} {
		for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{"": c.empty, "ratelimit": c.name, "other": 0} {
			res, err := c.checks.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if got := res.GetStatus(); service != "other" && got != want || service == "other" && i < 2 && status.Code(err) != codes.NotFound {
				t.Errorf("%d: the health of %q is %v, %v; want %v", i, service, got, err, want)
			}
		}
	}
}

func post(h http.Handler, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/json", strings.NewReader(body)))
	return rec
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

// While large requests fill their room, further ones are refused and counted, and small ones are decided. When the first
// have been answered there is room again.
func TestTheBytesOfLargeRequestsAreBounded(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	memory := memstore.New(nil)
	store := storeFunc(func(ctx context.Context, op *driver.Op) error {
		if !strings.Contains(op.Key, "small") {
			inside <- struct{}{}
			<-finish
		}
		return charge(ctx, memory, op)
	})
	d := servertest.Decider(t, store, text)
	counted := stats.New(nil)
	s := New(d, &Options{Stats: counted, Access: servertest.Gate(t, everything)})
	s.Room.Store(50_000)
	released := func() bool { return s.Room.Load() == 50_000 }
	large := func() error {
		_, err := s.ShouldRateLimit(t.Context(), request("ip="+strings.Repeat("x", 20_000)))
		return err
	}
	ended := make(chan error)
	for range 2 {
		go func() { ended <- large() }()
		<-inside
	}
	if err := large(); status.Code(err) != codes.ResourceExhausted || invalid(t, counted) != 1 {
		t.Errorf("the third: %v, %v counted", err, invalid(t, counted))
	}
	w := httptest.NewRecorder()
	body := strings.NewReader(`{"domain":"` + strings.Repeat("x", 20_000) + `"}`)
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", body))
	if w.Code != http.StatusServiceUnavailable || body.Len() == 0 || invalid(t, counted) != 2 {
		t.Errorf("a body: %d %s, %d bytes not read, %v counted", w.Code, w.Body, body.Len(), invalid(t, counted))
	}
	if _, err := s.ShouldRateLimit(t.Context(), request("ip=small")); err != nil {
		t.Errorf("a small one: %v", err)
	}
	close(finish)
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a large one with room: %v", err)
		}
	}
	go func() { <-inside }()
	if err := large(); err != nil || !released() {
		t.Errorf("afterwards: %v, or bytes are not released", err)
	}
	if w = post(s, `{"domain":"`+strings.Repeat("x", 20_000)+`"}`); w.Code != http.StatusBadRequest || !released() {
		t.Errorf("a body with room: %d %s, or bytes are not released", w.Code, w.Body)
	}
}
