package httplimit_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/sash"
	"example.com/sash/httplimit"
)

// visit sends a request to a real server.
func visit(t *testing.T, server *httptest.Server, method, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := errors.Join(err, flush(rw)); err != nil {
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

func flush(rw *bufio.ReadWriter) error { return rw.Flush() }
