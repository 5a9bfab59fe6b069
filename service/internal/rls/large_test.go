package rls

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// While large requests fill their room, further ones are refused and counted, and small ones are decided. When the first
// have been answered there is room again.
func TestTheBytesOfLargeRequestsAreBounded(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	memory := memstore.New(nil)
	store := storeFunc(func(ctx context.Context, req driver.Request) (driver.Answer, error) {
		if !strings.Contains(req.Key, "small") {
			inside <- struct{}{}
			<-finish
		}
		return memory.Decide(ctx, req)
	})
	d := servertest.Decider(t, store, text)
	counted := stats.New(nil)
	s := New(d, &Options{Stats: counted, Access: servertest.Gate(t, everything)})
	s.large.most = 50_000
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
	if err := large(); err != nil || s.large.way.Load() != 0 {
		t.Errorf("afterwards: %v, %d bytes are under way", err, s.large.way.Load())
	}
	w = httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(`{"domain":"`+strings.Repeat("x", 20_000)+`"}`)))
	if w.Code != http.StatusBadRequest || s.large.way.Load() != 0 {
		t.Errorf("a body with room: %d %s, %d bytes are under way", w.Code, w.Body, s.large.way.Load())
	}
}
