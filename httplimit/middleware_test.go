package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/httplimit"
)

func TestCost(t *testing.T) {
	clock := newClock()
	h := newMiddleware(t, newLimiter(t, clock.store(), nil, sash.PerMinute(10)), httplimit.PeerAddress, &httplimit.Options{
		Cost: func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.FormValue("n"), 10, 64)
			return n
		},
	})(ok)
	wantField(t, get(h, "GET", "/?n=7", nil), "RateLimit", `"10/1m";r=3;t=60`)
	wantStatus(t, get(h, "GET", "/?n=4", nil), 429)
	wantStatus(t, get(h, "GET", "/?n=3", nil), 200)

	res := get(h, "GET", "/?n=11", nil)
	wantStatus(t, res, 400)
	wantField(t, res, "Retry-After", "")
	wantStatus(t, get(h, "GET", "/?n=0", nil), 500) // a cost function must not make requests free
}

func TestMiddlewaresThatCannotWork(t *testing.T) {
	limiter := newLimiter(t, newClock().store(), nil, sash.PerMinute(1))
	layer := func(name string) httplimit.Layer { return httplimit.Layer{Name: name, Key: httplimit.Shared("x")} }
	for name, c := range map[string]struct {
		layers []httplimit.Layer
		opts   httplimit.Options
		says   string
	}{
		"no layer":           {nil, httplimit.Options{}, "at least one layer"},
		"no key":             {[]httplimit.Layer{{Name: "a"}}, httplimit.Options{}, "key function"},
		"no name":            {[]httplimit.Layer{layer("a"), layer("")}, httplimit.Options{}, "needs a name"},
		"one name twice":     {[]httplimit.Layer{layer("a"), layer("a")}, httplimit.Options{}, `"a"`},
		"five at once":       {[]httplimit.Layer{layer("a"), layer("b"), layer("c"), layer("d"), layer("e")}, httplimit.Options{}, "at most 4"},
		"a limit of nothing": {[]httplimit.Layer{{Key: httplimit.PeerAddress, Limits: []sash.Limit{{}}}}, httplimit.Options{}, "invalid limit"},
		"a dialect of none":  {[]httplimit.Layer{layer("a")}, httplimit.Options{Dialect: 77}, "Dialect(77)"},
	} {
		_, err := httplimit.NewLayers(limiter, c.layers, &c.opts)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that contains %q", name, err, c.says)
		}
	}
	wantPanic(t, "httplimit: a middleware needs a limiter, from sash.New", func() {
		_, _ = httplimit.NewLayers(nil, []httplimit.Layer{layer("a")}, nil)
	})
	wantPanic(t, "httplimit: New needs a key function, such as PeerAddress", func() { _, _ = httplimit.New(limiter, nil, nil) })
}

// A deadline of the server before the Timeout leaves the failure mode in force.
func TestFailures(t *testing.T) {
	down := errors.New("connection refused")
	for _, c := range []struct {
		name   string
		store  driver.Store
		opts   httplimit.Options
		within time.Duration // of the server
		status int
		retry  int64 // the least
	}{
		{"closed by default", failing(down), httplimit.Options{}, time.Hour, 503, 5},
		{"open", failing(down), httplimit.Options{FailOpen: true}, time.Hour, 200, 0},
		{"closed when the store hangs", hanging(), httplimit.Options{Timeout: time.Millisecond}, time.Hour, 503, 5},
		{"open when the store hangs", hanging(), httplimit.Options{Timeout: time.Millisecond, FailOpen: true}, time.Hour, 200, 0},
		{"closed at an earlier deadline", hanging(), httplimit.Options{}, time.Millisecond, 503, 5},
		{"open at an earlier deadline", hanging(), httplimit.Options{FailOpen: true}, time.Millisecond, 200, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reported error
			c.opts.OnError = func(_ *http.Request, err error) { reported = err }
			h := newMiddleware(t, newLimiter(t, c.store, nil, sash.PerMinute(1)), httplimit.PeerAddress, &c.opts)(ok)
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			res := get(h, "GET", "/", func(r *http.Request) { *r = *r.WithContext(ctx) })
			wantStatus(t, res, c.status)
			if retry, _ := strconv.ParseInt(res.header.Get("Retry-After"), 10, 64); retry < c.retry || retry > 2*c.retry {
				t.Errorf("Retry-After: %d, want %d to %d", retry, c.retry, 2*c.retry)
			}
			wantField(t, res, "RateLimit", "")
			if !errors.Is(reported, sash.ErrUnavailable) {
				t.Errorf("OnError received %v, want ErrUnavailable", reported)
			}
			if c.status == 503 {
				if p := problemOf(t, res); p.Type != httplimit.ProblemReducedCapacity || p.Status != 503 || len(p.Violated) != 0 || strings.Contains(p.Detail, "refused") {
					t.Errorf("problem %+v", p)
				}
			}
		})
	}
}

// visit sends a request to a real server.
func visit(t *testing.T, server *httptest.Server, method, path string, header ...string) answer {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, server.URL+path, nil))(t)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := must(io.ReadAll(res.Body))(t)
	return answer{res.StatusCode, res.Header, string(body)}
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func TestInFrontOfAServeMux(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", ok)
	mux.Handle("GET /users/{id}", ok)
	limit := newMiddleware(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(1)), httplimit.PatternOf(mux), nil)
	server := serve(t, limit(mux))
	wantStatus(t, visit(t, server, "GET", "/items/1"), 200)
	wantStatus(t, visit(t, server, "GET", "/items/2"), 429)
	wantStatus(t, visit(t, server, "GET", "/users/1"), 200)
	wantStatus(t, visit(t, server, "GET", "/nothing/1"), 404)
	wantStatus(t, visit(t, server, "GET", "/nothing/2"), 429) // a scan of paths creates no new keys
}

func TestHandlersCanFlushAndHijack(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, clock.store(), nil, sash.PerMinute(100))
	flight := httplimit.Layer{Key: httplimit.PeerAddress, Charge: httplimit.InFlight}
	for name, limit := range map[string]httplimit.Middleware{
		"requests":  newMiddleware(t, limiter, httplimit.PeerAddress, nil),
		"failures":  newLayers(t, limiter, nil, failures(httplimit.PeerAddress)),
		"in flight": newLayers(t, limiter, nil, flight),
	} {
		mux := http.NewServeMux()
		var flushed error
		mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) { flushed = http.NewResponseController(w).Flush() })
		mux.HandleFunc("/directly", func(w http.ResponseWriter, r *http.Request) { // as older libraries do
			if _, is := w.(http.Hijacker); !is {
				t.Errorf("%s: no http.Hijacker", name)
			}
			w.WriteHeader(http.StatusAccepted)
			w.(http.Flusher).Flush()
		})
		mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				http.Error(w, err.Error(), 500)
				return
			}
			defer conn.Close()
			_, err = rw.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			if err := errors.Join(err, rw.Flush()); err != nil {
				t.Error(err)
			}
		})
		server := serve(t, limit(mux))
		wantStatus(t, visit(t, server, "GET", "/flush"), 200)
		if flushed != nil {
			t.Errorf("%s: %v", name, flushed)
		}
		wantStatus(t, visit(t, server, "GET", "/hijack"), 202)
		wantStatus(t, visit(t, server, "GET", "/directly"), 202)
	}
}
