package outgoing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

// A transport closes the body of a request also when it does not send it.
func TestTheBodyOfARequestIsAlwaysClosed(t *testing.T) {
	failed := errors.New("no route to host")
	api := outgoing.Everything("api")
	returns := func(call outgoing.Call, err error) outgoing.Route {
		return func(*http.Request) (outgoing.Call, error) { return call, err }
	}
	twice := outgoing.Call{Key: "api", Also: []sash.Subject{{Key: "api", Cost: 1}}}
	for name, c := range map[string]struct {
		route outgoing.Route
		store driver.Store
		opts  outgoing.Options
		limit int64
	}{
		"the route fails":           {returns(outgoing.Call{}, failed), newStore(), outgoing.Options{}, 2},
		"a share that is none":      {returns(outgoing.Call{Key: "api", Share: 101}, nil), newStore(), outgoing.Options{}, 2},
		"a negative cost":           {returns(outgoing.Call{Key: "api", Cost: -1}, nil), newStore(), outgoing.Options{}, 2},
		"a cost above the limit":    {returns(outgoing.Call{Key: "api", Cost: 3}, nil), newStore(), outgoing.Options{}, 2},
		"the same bucket twice":     {returns(twice, nil), newStore(), outgoing.Options{}, 2},
		"a key that is too long":    {returns(outgoing.Call{Key: strings.Repeat("k", 10_000)}, nil), newStore(), outgoing.Options{}, 2},
		"the store fails":           {api, downStore(), outgoing.Options{}, 2},
		"no room":                   {outgoing.Everything("full"), newStore(), outgoing.Options{Refuse: true}, 1},
		"the caller has left":       {api, newStore(), outgoing.Options{}, 2},
		"the transport below fails": {api, newStore(), outgoing.Options{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
				_ = req.Body.Close() // as its contract says
				return nil, failed
			})
			rt := newRoundTripper(t, c.store, c.route, &c.opts, sash.PerHour(c.limit))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "the caller has left" {
				cancel()
			}
			var body *watched
			for range 2 { // the first fills the bucket
				body = &watched{Reader: strings.NewReader("text")}
				req := must(http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/", body))(t)
				_, err := rt.RoundTrip(req) //nolint:bodyclose // there is no answer
				if err == nil || errors.Is(err, sash.ErrCostAboveLimit) != (name == "a cost above the limit") {
					t.Fatal(err)
				}
			}
			if body.closed != 1 {
				t.Errorf("the body was closed %d times", body.closed)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func TestAGetBodyThatFailsEndsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the file is gone")
		f := &flaky{refuse: 9, status: http.StatusTooManyRequests}
		req := newRequest(t, http.MethodPut, "http://api.test/", strings.NewReader("text"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		_, err := retrying(t, f, false, outgoing.Retries{Most: 5}).RoundTrip(req) //nolint:bodyclose // there is no answer
		if !errors.Is(err, gone) || len(f.bodies) != 1 || f.closed != 1 {
			t.Errorf("%v after %d attempts; %d answers were drained and closed", err, len(f.bodies), f.closed)
		}
	})
}

// Which requests may be repeated depends on the exact spelling of their method.
func TestOnlyRepeatableRequestsAreRetried(t *testing.T) {
	for request, attempts := range map[string]int{
		"GET": 2, "HEAD": 2, "OPTIONS": 2, "TRACE": 2, "PUT": 2, "DELETE": 2, "POST": 1, "PATCH": 1, "FETCH": 1, "CONNECT": 1,
		"POST with a key": 2, "PATCH with a key": 2,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{refuse: 1, status: http.StatusServiceUnavailable}
			method, _, key := strings.Cut(request, " ")
			req := newRequest(t, method, "http://api.test/", nil)
			if key {
				req.Header.Set("Idempotency-Key", "8e03978e")
			}
			if roundTrip(t, retrying(t, f, false, outgoing.Retries{Most: 5}), req); len(f.bodies) != attempts { //nolint:bodyclose // the test's body holds nothing
				t.Errorf("%s: %d attempts, want %d", request, len(f.bodies), attempts)
			}
		})
	}
}

// canned returns a transport that returns one response.
func canned(res *http.Response) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		res.Request = req
		return res, nil
	})
}

type watched struct {
	io.Reader
	closed int
}

func (w *watched) Close() error {
	w.closed++
	return nil
}

func TestABodyWithSignsIsCompleteAndClosedByTheCaller(t *testing.T) {
	cut := errors.New("connection reset")
	long := `{"error":{"errors":[{"reason":"quotaExceeded"}]},"more":"` + strings.Repeat("x", 200<<10) + `"}`
	for name, c := range map[string]struct {
		text string
		err  error
		cool bool
	}{
		"short":                {youtubeQuota, nil, true},
		"empty":                {"", nil, false},
		"longer than is read":  {long, nil, false},
		"cut off":              {youtubeQuota[:40], cut, false},
		"whole, then cut off":  {youtubeQuota, cut, false},
		"longer, then cut off": {long, cut, false},
		"not JSON":             {"quotaExceeded", nil, false},
		"deep":                 {strings.Repeat(`[`, 60_000), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			parts := []io.Reader{strings.NewReader(c.text)}
			if c.err != nil {
				parts = append(parts, iotest.ErrReader(c.err))
			}
			body := &watched{Reader: io.MultiReader(parts...)}
			res := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: body, ContentLength: int64(len(c.text))}
			rt := newRoundTripper(t, newStore(), outgoing.Everything("api"),
				&outgoing.Options{Refuse: true, Base: canned(res), Profile: vendor(t, "youtube")}, sash.PerDay(10_000))
			req := newRequest(t, http.MethodGet, "http://api.test/", nil)
			got, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(got.Body)
			if string(text) != c.text || !errors.Is(err, c.err) {
				t.Errorf("%d bytes of %d, and %v", len(text), len(c.text), err)
			}
			if body.closed != 0 {
				t.Error("closed before the caller did")
			}
			if got.Body.Close(); body.closed != 1 {
				t.Errorf("closed %d times", body.closed)
			}
			next, err := rt.RoundTrip(req)
			if errors.Is(err, sash.ErrLimited) != c.cool {
				t.Errorf("the next call: %v", err)
			}
			if err == nil {
				_ = next.Body.Close()
			}
		})
	}
}
