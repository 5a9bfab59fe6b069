package httpapi

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

func TestAFaultEndsOneRequestAndIsCounted(t *testing.T) {
	decider := servertest.Decider(t, panics{}, limits)
	var logs bytes.Buffer
	counted := 0
	log := slog.New(slog.NewTextHandler(&logs, nil))
	s := httptest.NewServer(Recover(New(decider, &Options{Log: log, Operator: func(next http.Handler) http.Handler { return next }}), log, func() { counted++ }))
	defer s.Close()
	for _, path := range []string{"/v1/allow", "/v1/peek", "/v1/explain"} {
		res, err := http.Post(s.URL+path, "application/json", strings.NewReader(`{"domain":"d","entries":[{"key":"user","value":"a"}]}`))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 500 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if counted != 3 || !strings.Contains(logs.String(), "/v1/allow") {
		t.Errorf("%d counted; logs: %s", counted, logs.String())
	}
}
