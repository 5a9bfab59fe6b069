package outgoing_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// handled sends requests to a handler of the same process, so that a test's clock holds for both.
type handled http.HandlerFunc

func (h handled) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	h(rec, req)
	if req.Body != nil {
		_ = req.Body.Close()
	}
	res := rec.Result()
	res.Request = req
	return res, nil
}

// An upstream counts in fixed windows of its own and says so in a vendor's fields.
type upstream struct {
	limit  int
	window time.Duration
	fields func(h http.Header, limit, left int, reset time.Time)
	status int // of a refusal; zero is 429

	mu       sync.Mutex
	start    time.Time
	used     int
	served   int
	refused  int
	arrivals []time.Time
}

// foreign counts units that another client uses with the same credential.
func (u *upstream) foreign(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.turn()
	u.used += n
}

func (u *upstream) turn() {
	if now := time.Now(); now.Sub(u.start) >= u.window {
		u.start, u.used = now.Truncate(u.window), 0
	}
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.turn()
	u.arrivals = append(u.arrivals, time.Now())
	refuse := u.used >= u.limit
	if !refuse {
		u.used++
	}
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	u.fields(w.Header(), u.limit, max(0, u.limit-u.used), u.start.Add(u.window))
	if refuse {
		u.refused++
		w.WriteHeader(max(u.status, http.StatusForbidden))
		return
	}
	u.served++
}

func github(h http.Header, limit, left int, reset time.Time) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
}

func silent(http.Header, int, int, time.Time) {}

// learnt is the Spread of a transport that learns it.
const learnt = -2

func newTransport(t *testing.T, store driver.Store, base http.HandlerFunc, opts outgoing.Options, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	opts.Base = handled(base)
	switch opts.Spread {
	case 0:
		opts.Spread = -1 // the handler is called at once
	case learnt:
		opts.Spread = 0
	}
	transport := newRoundTripper(t, store, outgoing.Everything("api"), &opts, limits...)
	return transport
}

func vendor(t *testing.T, name string) outgoing.Profile {
	t.Helper()
	p, ok := outgoing.Vendor(name)
	if !ok {
		t.Fatal("no profile of", name)
	}
	return p
}

func get(ctx context.Context, rt http.RoundTripper) (int, error) {
	return send(ctx, rt, http.MethodGet, nil)
}

func send(ctx context.Context, rt http.RoundTripper, method string, body io.Reader) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://api.test/", body)
	if err != nil {
		return 0, err
	}
	res, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

func ok(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	if status, err := get(t.Context(), rt); err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v", status, err)
	}
}

func answer(status int, lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
	}
}

func newStore() *memstore.Store { return memstore.New(nil) }

func newRoundTripper(t testing.TB, store driver.Store, route outgoing.Route, opts *outgoing.Options, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	v, err := outgoing.New(store, route, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	v, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	v, err := sash.New(store, opts, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
