package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
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

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newMiddleware(t testing.TB, l *sash.Limiter, key httplimit.KeyFunc, opts *httplimit.Options) httplimit.Middleware {
	t.Helper()
	m, err := httplimit.New(l, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newLayers(t testing.TB, l *sash.Limiter, opts *httplimit.Options, layers ...httplimit.Layer) httplimit.Middleware {
	t.Helper()
	m, err := httplimit.NewLayers(l, layers, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
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

// hanging returns a store whose calls wait until their context ends, and send on calls, which may be nil.
func hanging(calls chan<- struct{}) driver.Store {
	store := storetest.NewFaulty(memstore.New(nil))
	store.Hang(calls)
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

// bubble runs a subtest whose clock is its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
