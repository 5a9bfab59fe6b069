package outgoing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// flaky refuses the first n requests, and records their bodies.
type flaky struct {
	refuse int
	status int
	after  string
	bodies []string
	closed int
}

func (f *flaky) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	f.bodies = append(f.bodies, string(body))
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: &closing{Reader: strings.NewReader("some text"), f: f}}
	if len(f.bodies) <= f.refuse {
		res.StatusCode = f.status
		if f.after != "" {
			res.Header.Set("Retry-After", f.after)
		}
	}
	return res, nil
}

type closing struct {
	io.Reader
	f *flaky
}

func (c *closing) Close() error {
	if n, _ := c.Read(make([]byte, 1)); n == 0 {
		c.f.closed++ // read to its end, then closed
	}
	return nil
}

func retrying(t *testing.T, f *flaky, refuse bool, r outgoing.Retries) *outgoing.Transport {
	t.Helper()
	p := outgoing.Profile{}
	if f.status == http.StatusForbidden {
		p = vendor(t, "github")
	}
	opts := &outgoing.Options{Base: f, Refuse: refuse, Retries: r, Profile: p}
	return newRoundTripper(t, newStore(), outgoing.Everything("api"), opts, sash.PerHour(5000))
}

func again() io.Reader { return strings.NewReader("text") }

func once() io.Reader { return io.MultiReader(strings.NewReader("text")) }

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		method   string
		body     func() io.Reader
		f        flaky
		retries  outgoing.Retries
		attempts int
		status   int
		least    time.Duration
		most     time.Duration
	}{
		"none by default":         {"GET", nil, flaky{refuse: 1, status: 429}, outgoing.Retries{}, 1, 429, 0, 0},
		"after Retry-After":       {"GET", nil, flaky{refuse: 1, status: 429, after: "10"}, outgoing.Retries{Most: 3}, 2, 200, 10 * time.Second, 11 * time.Second},
		"503":                     {"GET", nil, flaky{refuse: 2, status: 503}, outgoing.Retries{Most: 3}, 3, 200, 0, 1500 * time.Millisecond},
		"other failures are not":  {"GET", nil, flaky{refuse: 1, status: 500}, outgoing.Retries{Most: 3}, 1, 500, 0, 0},
		"up to Most":              {"GET", nil, flaky{refuse: 9, status: 503}, outgoing.Retries{Most: 2}, 3, 503, 0, 1500 * time.Millisecond},
		"a body is sent again":    {"PUT", again, flaky{refuse: 1, status: 429}, outgoing.Retries{Most: 1}, 2, 200, time.Second, 2 * time.Second},
		"not a body that is gone": {"PUT", once, flaky{refuse: 1, status: 429}, outgoing.Retries{Most: 1}, 1, 429, 0, 0},
		"a vendor's other refusal": {"GET", nil, flaky{refuse: 1, status: 403, after: "5"}, outgoing.Retries{Most: 1}, 2, 200, 5 * time.Second,
			6 * time.Second},
		"not a Retry-After above the cap": {"GET", nil, flaky{refuse: 1, status: 429, after: "61"}, outgoing.Retries{Most: 1}, 1, 429, 0, 0},
	} {
		for _, refuse := range []bool{false, true} {
			bubble(t, name, func(t *testing.T) {
				f, body := c.f, io.Reader(nil)
				if c.body != nil {
					body = c.body()
				}
				start := time.Now()
				status, err := send(t.Context(), retrying(t, &f, refuse, c.retries), c.method, body)
				if took := time.Since(start); err != nil || status != c.status || len(f.bodies) != c.attempts || took < c.least || took > c.most {
					t.Errorf("%d after %d attempts and %v: %v", status, len(f.bodies), took, err)
				}
				for i, sent := range f.bodies {
					if body != nil && sent != "text" {
						t.Errorf("attempt %d sent %q", i, sent)
					}
				}
				if f.closed < c.attempts-1 {
					t.Errorf("of %d answers that were discarded, %d were drained and closed", c.attempts-1, f.closed)
				}
			})
		}
	}
}

// Some retrying clients sleep for as long as a server says, and ignore their context meanwhile. This one returns the response
// when Retry-After or a reset is above MaxRetryAfter, or would overflow into no sleep. With a malformed, negative or past one
// the delay is random and bounded.
func TestARetryAfterIsNotTrusted(t *testing.T) {
	tooLong := []string{
		"61", "86400", "31536000", "9223372036", "9223372037", "18446744073709551616", "99999999999999999999999999",
		"61.5", "Fri, 31 Dec 2100 23:59:59 GMT",
	}
	odd := []string{"-1", "-9223372036854775808", "NaN", "Inf", "1e9", "0x10", "soon", "Mon, 01 Jan 1990 00:00:00 GMT"}
	for i, after := range slices.Concat(tooLong, odd) {
		synctest.Test(t, func(t *testing.T) {
			want, most := http.StatusServiceUnavailable, time.Duration(0)
			if i >= len(tooLong) {
				want, most = http.StatusOK, 2*time.Second
			}
			f, start := &flaky{refuse: 1, status: http.StatusServiceUnavailable, after: after}, time.Now()
			status, err := get(t.Context(), retrying(t, f, false, outgoing.Retries{Most: 5}))
			if took := time.Since(start); err != nil || status != want || took > most {
				t.Errorf("Retry-After %q: %d, %v after %v and %d attempts", after, status, err, took, len(f.bodies))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newStore(), answer(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 3000"),
			outgoing.Options{Retries: outgoing.Retries{Most: 1}}, sash.PerHour(5000))
		start := time.Now()
		if status, err := get(t.Context(), rt); status != 429 || err != nil || time.Since(start) != 0 {
			t.Errorf("a distant reset: %d, %v after %v", status, err, time.Since(start))
		}
	})
}

func TestRetriesHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{refuse: 1 << 30, status: 503}
		rt := retrying(t, f, false, outgoing.Retries{Most: 5})
		for range 200 {
			if status, err := get(t.Context(), rt); status != 503 || err != nil {
				t.Fatal(status, err)
			}
		}
		if n := len(f.bodies); n < 225 || n > 231 { // ten free ones, and a tenth of 200
			t.Errorf("200 requests to an API that is down became %d", n)
		}
	})
}

func TestRetriesKeepToTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{refuse: 1 << 30, status: 429, after: "30"}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		status, err := get(ctx, retrying(t, f, false, outgoing.Retries{Most: 5}))
		if status != 429 || err != nil || time.Since(start) != 0 {
			t.Errorf("past the deadline: %d, %v after %v; want the API's answer at once", status, err, time.Since(start))
		}
	})
	stopped := errors.New("the job was stopped")
	for _, after := range []string{"30", "Sat, 01 Jan 2000 00:00:30 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{refuse: 1 << 30, status: 429, after: after}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { cancel(stopped) })
			start := time.Now()
			req := newRequest(t, http.MethodGet, "http://api.test/", nil).WithContext(ctx)
			_, err := retrying(t, f, false, outgoing.Retries{Most: 5}).RoundTrip(req) //nolint:bodyclose // there is no answer
			if !errors.Is(err, stopped) || time.Since(start) != 10*time.Second || len(f.bodies) != 1 {
				t.Errorf("Retry-After %q: %v after %v and %d attempts", after, err, time.Since(start), len(f.bodies))
			}
		})
	}
}
