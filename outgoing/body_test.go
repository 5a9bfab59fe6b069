package outgoing_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/outgoing"
)

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
				parts = append(parts, errorReader{c.err})
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

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// The transport does not read the body of a response that is no refusal, or of an API without signs in bodies.
func TestOtherBodiesAreLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		vendor string
		status int
	}{
		"a success": {"youtube", 200}, "not found": {"youtube", 404}, "an API with fields only": {"anthropic", 429},
	} {
		body := &watched{Reader: errorReader{errors.New("it was read")}}
		base := canned(&http.Response{StatusCode: c.status, Header: http.Header{}, Body: body})
		opts := &outgoing.Options{Profile: vendor(t, c.vendor), Base: base}
		rt := newRoundTripper(t, newStore(), outgoing.Everything("api"), opts, sash.PerDay(10_000))
		if res := roundTrip(t, rt, newRequest(t, http.MethodGet, "http://api.test/", nil)); res.Body != body { //nolint:bodyclose // nothing is sent
			t.Errorf("%s: the body was replaced", name)
		}
	}
}
