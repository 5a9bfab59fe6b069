package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

func benchPort(b *testing.B, path, body string, header http.Header) {
	b.Helper()
	d := servertest.Decider(b, memstore.New(nil), "domain: d\ndescriptors:\n- {key: user, limits: [1000000000/1h, 2000000000/1d], algorithm: fixed-window}\n")
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
