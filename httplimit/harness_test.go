package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/httplimit"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
	"example.com/sash/storetest"
)

// start is a Sunday, ten minutes and a quarter of a second past noon in UTC.
var start = time.Date(2026, time.March, 1, 12, 10, 0, 250_000_000, time.UTC)

// A clock is that of a store in memory.
type clock struct{ *judge.Clock }

func newClock() clock { return clock{judge.NewClock(start)} }

func (c clock) store() *memstore.Store { return memstore.New(&memstore.Options{Now: c.Now}) }

// must returns what gives a test the value, and ends the test if there is an error: must(sash.New(store, nil, limit))(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, opts, limits...))(t)
}

func newMiddleware(t testing.TB, l *sash.Limiter, key httplimit.KeyFunc, opts *httplimit.Options) httplimit.Middleware {
	t.Helper()
	return must(httplimit.New(l, key, opts))(t)
}

func newLayers(t testing.TB, l *sash.Limiter, opts *httplimit.Options, layers ...httplimit.Layer) httplimit.Middleware {
	t.Helper()
	return must(httplimit.NewLayers(l, layers, opts))(t)
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

// An answer is a response that was read.
type answer struct {
	status int
	header http.Header
	body   string
}

// get runs a request through a handler; edit may be nil.
func get(h http.Handler, method, target string, edit func(*http.Request)) answer {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "203.0.113.9:4711"
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func wantStatus(t testing.TB, res answer, want int) {
	t.Helper()
	if res.status != want {
		t.Fatalf("status %d, want %d: %s", res.status, want, res.body)
	}
}

func wantField(t testing.TB, res answer, name, want string) {
	t.Helper()
	if got := res.header.Get(name); got != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// fields are those of a limit that a response has, and no others.
type fields map[string]string

func wantFields(t testing.TB, res answer, want fields) {
	t.Helper()
	for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
		wantField(t, res, name, want[name])
	}
	if _, refused := want["Retry-After"]; refused != (res.status == http.StatusTooManyRequests) {
		t.Errorf("status %d", res.status)
	}
}

// failing returns a store that fails with err.
func failing(err error) driver.Store {
	store := storetest.NewFaulty(memstore.New(nil))
	store.Fail(err)
	return store
}

// hanging returns a store whose calls wait until their context ends.
func hanging() driver.Store {
	store := storetest.NewFaulty(memstore.New(nil))
	store.Hang(nil)
	return store
}

// wantPanic calls f, which has to panic with a value.
func wantPanic(t testing.TB, want any, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != want {
			t.Errorf("recovered %v, want %v", p, want)
		}
	}()
	f()
}

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
			r := must(http.NewRequestWithContext(t.Context(), "GET", "/", nil))(t)
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
