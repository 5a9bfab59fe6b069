package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

func benchPort(b *testing.B, path, body string, header http.Header) {
	b.Helper()
	cfg, err := config.Parse("x.yaml", []byte("domain: d\ndescriptors:\n- {key: user, limits: [1000000000/1h, 2000000000/1d], algorithm: fixed-window}\n"))
	if err != nil {
		b.Fatal(err)
	}
	d, err := decide.New(cfg, memstore.New(nil))
	if err != nil {
		b.Fatal(err)
	}
	h := New(d, nil)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}

func BenchmarkAllow(b *testing.B) {
	benchPort(b, "/v1/allow", `{"domain":"d","entries":[{"key":"user","value":"ann"}]}`, http.Header{"Content-Type": {"application/json"}})
}

func BenchmarkForwardAuth(b *testing.B) {
	benchPort(b, "/v1/forward-auth?domain=d&descriptor=user%3Dann", "", http.Header{"X-Forwarded-For": {"192.0.2.7"}})
}
