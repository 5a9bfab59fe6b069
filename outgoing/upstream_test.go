package outgoing_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
	return newRoundTripper(t, store, outgoing.Everything("api"), &opts, limits...)
}

// vendor returns the profile of a vendor; of the empty name the zero Profile.
func vendor(t *testing.T, name string) outgoing.Profile {
	t.Helper()
	p, ok := outgoing.Vendor(name)
	if !ok && name != "" {
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

// A fake is a store over another one in whose place a function answers.
type fake struct {
	driver.Passthrough
	on func(ctx context.Context, b *driver.Batch) error
}

func (f *fake) Do(ctx context.Context, b *driver.Batch) error { return f.on(ctx, b) }

func over(next driver.Store, on func(context.Context, *driver.Batch) error) *fake {
	return &fake{driver.Passthrough{Store: next}, on}
}

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

func newRoundTripper(t testing.TB, store driver.Store, route outgoing.Route, opts *outgoing.Options, limits ...sash.Limit) *outgoing.Transport {
	t.Helper()
	return must(outgoing.New(store, route, opts, limits...))(t)
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	return must(http.NewRequestWithContext(t.Context(), method, url, body))(t)
}

func newLimiter(t testing.TB, store driver.Store, opts *sash.Options, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return must(sash.New(store, opts, limits...))(t)
}

// bubble runs a subtest whose clock is its own.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// sent sends a request, whatever the API says.
func sent(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	if _, err := get(t.Context(), rt); err != nil {
		t.Error(err)
	}
}

// A strict API admits at most units requests in any window, counted exactly when they arrive.
type strict struct {
	jitter time.Duration // of the way to it, and of a new connection once more
	fields bool          // it describes its quota
	mu     sync.Mutex
	units  int
	window time.Duration
	log    []time.Time // of the requests in the window, guarded by mu
	served int
	tooFew int // refused

	arrivals []time.Time
}

func (s *strict) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(upTo(s.jitter)) // still on its way
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.log) > 0 && !s.log[0].After(now.Add(-s.window)) {
		s.log = s.log[1:]
	}
	refuse := len(s.log) >= s.units
	if !refuse {
		s.log = append(s.log, now)
	}
	s.arrivals = append(s.arrivals, now)
	if s.fields {
		w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%.0f`, s.units, s.window.Seconds()))
		left, reset := max(0, s.units-len(s.log)), math.Ceil(s.log[0].Add(s.window).Sub(now).Seconds())
		w.Header().Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%.0f`, left, reset))
	}
	if refuse {
		s.tooFew++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.served++
}

func upTo(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }

// start serves the API and returns its address. Its new connections take up to jitter longer.
func (s *strict) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.Listener = slow{server.Listener, s.jitter}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

type slow struct {
	net.Listener
	jitter time.Duration
}

func (l slow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &slowConn{Conn: conn, delay: upTo(l.jitter)}, err
}

type slowConn struct {
	net.Conn
	delay time.Duration
	once  sync.Once
}

func (c *slowConn) Read(b []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.delay) })
	return c.Conn.Read(b)
}

// roundTrip sends a request, and closes the body of the response.
func roundTrip(t *testing.T, rt http.RoundTripper, req *http.Request) *http.Response {
	t.Helper()
	res := must(rt.RoundTrip(req))(t)
	_ = res.Body.Close()
	return res
}

// fleet has workers of several processes send n requests each, as fast as they may.
func fleet(t *testing.T, processes, workers, n int, process func() http.RoundTripper) {
	t.Helper()
	var group sync.WaitGroup
	for range processes {
		rt := process()
		for range workers {
			group.Go(func() {
				for range n {
					sent(t, rt)
				}
			})
		}
	}
	group.Wait()
}
