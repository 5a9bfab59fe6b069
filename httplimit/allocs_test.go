package httplimit_test

import (
	"net/http"
	"testing"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// A sink is a ResponseWriter that is used for one request after another.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

func TestAllocationsOfARequest(t *testing.T) {
	two := []sash.Limit{sash.PerMinute(10_000), sash.PerHour(20_000)}
	full := []sash.Limit{sash.PerMinute(1), sash.PerHour(2)}
	plans := map[string][]sash.Limit{"free": two, "pro": {sash.PerMinute(20_000), sash.PerHour(40_000)}}
	byPlan := func(r *http.Request) ([]sash.Limit, error) { return plans[r.Header.Get("Plan")], nil }
	for _, c := range []struct {
		name    string
		dialect httplimit.Dialect
		layers  []httplimit.Layer
		most    float64
	}{
		{"the limiter's limits", httplimit.Draft11, []httplimit.Layer{{Key: httplimit.PeerAddress}}, 12},
		{"the limits of a layer", httplimit.Draft11, []httplimit.Layer{{Key: httplimit.PeerAddress, Limits: two}}, 12},
		{"the limits of a plan", httplimit.Draft11, []httplimit.Layer{{Key: httplimit.PeerAddress, LimitsFor: byPlan}}, 12},
		{"a refusal", httplimit.Draft11, []httplimit.Layer{{Key: httplimit.PeerAddress, Limits: full}}, 23},
		{"draft 7", httplimit.Draft07, []httplimit.Layer{{Key: httplimit.PeerAddress}}, 12},
		{"draft 6", httplimit.Draft06, []httplimit.Layer{{Key: httplimit.PeerAddress}}, 15},
		{"older fields", httplimit.LegacyUnix, []httplimit.Layer{{Key: httplimit.PeerAddress}}, 14},
		{"no fields", httplimit.NoFields, []httplimit.Layer{{Key: httplimit.PeerAddress}}, 8},
		{"two layers", httplimit.Draft11, []httplimit.Layer{
			{Name: "all", Key: httplimit.Shared("all"), Limits: two[:1]},
			{Name: "customer", Key: httplimit.PeerAddress, Limits: two},
		}, 26},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := newLimiter(t, memstore.New(nil), nil, two...)
			h := newLayers(t, limiter, &httplimit.Options{Dialect: c.dialect}, c.layers...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.RemoteAddr = "203.0.113.9:4711"
			r.Header.Set("Plan", "pro")
			w := &sink{http.Header{}}
			if n := testing.AllocsPerRun(1000, func() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}); n > c.most {
				t.Errorf("%v allocations a request, more than %v", n, c.most)
			}
		})
	}
}
