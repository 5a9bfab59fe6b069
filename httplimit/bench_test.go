package httplimit_test

import (
	"net/http/httptest"
	"testing"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// BenchmarkMiddleware measures what a middleware adds to an admitted request, in memory.
func BenchmarkMiddleware(b *testing.B) {
	for _, dialect := range []httplimit.Dialect{httplimit.Draft11, httplimit.LegacyUnix, httplimit.NoFields} {
		b.Run(dialect.String(), func(b *testing.B) {
			limiter := newLimiter(b, memstore.New(nil), nil, sash.Every(20_000, sash.MinWindow))
			h := newMiddleware(b, limiter, httplimit.PeerAddress, &httplimit.Options{Dialect: dialect})(ok)
			r := httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
