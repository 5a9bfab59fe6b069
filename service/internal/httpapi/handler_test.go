package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

const limits = `
domain: d
descriptors:
  - {key: user, limits: [3/10s, 4/1m]}
  - {key: heavy, cost: 2, limits: [3/10s]}
  - {key: watched, shadow_mode: true, limits: [1/10s]}
  - {key: fixed, algorithm: fixed-window, limits: [1/10s]}
  - {key: day, limits: [2/day@UTC]}
  - {key: slot, limits: [2/10s]}
`

// A clock is virtual time, which tests move.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func newHandler(t testing.TB, store driver.Store, opts *Options) *Handler {
	t.Helper()
	decider := servertest.Decider(t, store, limits)
	if opts == nil {
		opts = &Options{}
	}
	opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return New(decider, opts)
}

func virtual(t testing.TB) (*Handler, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 1, 1, 23, 59, 0, 0, time.UTC)}
	return newHandler(t, memstore.New(&memstore.Options{Now: c.read}), nil), c
}

func send(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func allow(h http.Handler, body string) *httptest.ResponseRecorder {
	return send(h, http.MethodPost, "/v1/allow", body)
}

func expect(t *testing.T, w *httptest.ResponseRecorder, status int, retryAfter, body string) {
	t.Helper()
	if w.Code != status || w.Header().Get("Retry-After") != retryAfter {
		t.Errorf("status %d, Retry-After %q; want %d, %q", w.Code, w.Header().Get("Retry-After"), status, retryAfter)
	}
	if got := strings.TrimSpace(w.Body.String()); got != body {
		t.Errorf("body\n\t%s, want\n\t%s", got, body)
	}
	if w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", w.Header().Get("Content-Type"))
	}
}

func TestWrongRequestsGetAnErrorThatSaysWhy(t *testing.T) {
	h, _ := virtual(t)
	const right = `{"domain":"d","entries":[{"key":"user","value":"a"}]}`
	many := `{"domain":"d","entries":[` + strings.Repeat(`{"key":"k"},`, wire.MaxEntries) + `{"key":"k"}]}`
	for name, tt := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		say                string
	}{
		"empty body":           {"POST", "/v1/allow", "", nil, 400, "the body is empty"},
		"cut off":              {"POST", "/v1/allow", right[:20], nil, 400, "ends in the middle"},
		"not JSON":             {"POST", "/v1/allow", "domain=d", nil, 400, "bad JSON: invalid character 'd'"},
		"a list":               {"POST", "/v1/allow", "[]", nil, 400, "array where an object is wanted"},
		"two objects":          {"POST", "/v1/allow", right + right, nil, 400, "something follows"},
		"not UTF-8":            {"POST", "/v1/allow", strings.Replace(right, "a\"}", "\xff\"}", 1), nil, 400, "not UTF-8"},
		"unknown field":        {"POST", "/v1/allow", `{"domain":"d","hits":1}`, nil, 400, `unknown field "hits"`},
		"other letters":        {"POST", "/v1/allow", `{"domain":"d","entries":[{"Key":"user","value":"1"}]}`, nil, 400, `unknown field "Key"`},
		"escaped letters":      {"POST", "/v1/allow", `{"domain":"d","entries":[{"\u006bey":"user","value":"1"}]}`, nil, 400, `in small letters`},
		"a field twice":        {"POST", "/v1/settle", `{"token":"a","used":1, "used" : 0}`, nil, 400, `the field "used" is there twice`},
		"a field twice inside": {"POST", "/v1/peek", `{"domain":"d","entries":[{"key":"}\"","key":"user"}]}`, nil, 400, `the field "key" is there twice`},
		"domain missing":       {"POST", "/v1/allow", `{"entries":[{"key":"user"}]}`, nil, 400, "domain is missing"},
		"domain a number":      {"POST", "/v1/allow", `{"domain":1}`, nil, 400, "domain is a number"},
		"entries missing":      {"POST", "/v1/allow", `{"domain":"d"}`, nil, 400, "entries are missing"},
		"too many entries":     {"POST", "/v1/allow", many, nil, 400, "at most 32"},
		"empty value":          {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"user","value":""}]}`, nil, 400, "entry 1: the value of \"user\" is empty"},
		"empty key":            {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"user"},{"key":""}]}`, nil, 400, "entry 2: the key is missing or empty"},
		"cost a fraction":      {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"user"}],"cost":1.5}`, nil, 400, "whole number"},
		"cost beyond 64 bits":  {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"user"}],"cost":1e30}`, nil, 400, "whole number"},
		"cost above the limit": {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"user"}],"cost":4}`, nil, 422, "can never fit into 3/10s"},
		"cost without a limit": {"POST", "/v1/allow", `{"domain":"d","entries":[{"key":"x"}],"cost":0}`, nil, 400, "at least 1"},
		"unknown domain":       {"POST", "/v1/allow", `{"domain":"e","entries":[{"key":"user"}]}`, nil, 404, `unknown domain "e": the configuration has d`},
		"body too large":       {"POST", "/v1/allow", strings.Repeat(" ", wire.MaxBody) + right, nil, 413, "larger than 65536 bytes"},
		"XML":                  {"POST", "/v1/allow", right, []string{"Content-Type", "text/xml"}, 415, "must be application/json"},
		"compressed":           {"POST", "/v1/allow", right, []string{"Content-Encoding", "gzip"}, 415, "gzip"},
		"GET":                  {"GET", "/v1/allow", "", nil, 405, "POST a request here"},
		"unknown path":         {"POST", "/v2/allow", right, nil, 404, "no such path"},
	} {
		w := send(h, tt.method, tt.path, tt.body, tt.header...)
		var answer struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Errorf("%s: %v in %s", name, err, w.Body)
		}
		if w.Code != tt.status || !strings.Contains(answer.Error, tt.say) {
			t.Errorf("%s: %d %q, want %d %q", name, w.Code, answer.Error, tt.status, tt.say)
		}
		if (w.Code == 405) != (w.Header().Get("Allow") != "") {
			t.Errorf("%s: Allow is %q", name, w.Header().Get("Allow"))
		}
	}
	for _, kind := range []string{"application/json; charset=utf-8", "application/problem+json", "application/x-www-form-urlencoded"} {
		if w := send(h, "POST", "/v1/allow", right, "Content-Type", kind); w.Code != 200 {
			t.Errorf("%s: %d %s", kind, w.Code, w.Body)
		}
	}
}

// broken is a store that fails, or that hangs until its context ends.
type broken struct{ hangs bool }

func (broken) Powers() driver.Powers { return driver.CanSettle }

func (b broken) Do(ctx context.Context, _ *driver.Batch) error {
	if b.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("dial tcp 10.0.0.1: connection refused")
}

func TestBeforeItStopsHealthIsDownAndRequestsAreAnswered(t *testing.T) {
	draining := make(chan struct{})
	h := newHandler(t, memstore.New(nil), &Options{Draining: draining})
	if w := send(h, "GET", "/healthcheck", ""); w.Code != 200 || w.Header().Get("Connection") != "" {
		t.Errorf("before: %d, Connection %q", w.Code, w.Header().Get("Connection"))
	}
	close(draining)
	expect(t, send(h, "GET", "/healthz", ""), 503, "", `{"status":"draining","store":"memory","instances":1}`)
	if w := send(h, "GET", "/healthcheck", ""); w.Code != 500 {
		t.Errorf("/healthcheck: %d", w.Code)
	}
	w := allow(h, `{"domain":"d","entries":[{"key":"user","value":"a"}]}`)
	if w.Code != 200 || w.Header().Get("Connection") != "close" {
		t.Errorf("a request: %d, Connection %q", w.Code, w.Header().Get("Connection"))
	}
}

// Whatever is sent, the answer is JSON, and one of those that are documented: never a panic, never 500.
func FuzzBodies(f *testing.F) {
	h, _ := virtual(f)
	token := answer(f, send(h, http.MethodPost, "/v1/reserve", ann))["token"].(string)
	for _, body := range []string{
		ann, annFour, annJob,
		`{"token":"` + token + `","used":1}`, `{"token":"` + token + `"}`, `{"token":"a.b","used":-1}`,
		`{"domain":"d","entries":[{"key":"user"}],"cost":1e3}`, `{"domain":"d","entries":[null],"id":null}`,
		`{"domain":"d","entries":[{"key":"day","value":"\ud800"}]}`, `{"DOMAIN":"d"}`, `[[[[`, "null", "\xff", "",
		`{"domain":"d","domain":"e","entries":[{"key":"` + strings.Repeat("x", 600) + `"}]}`,
	} {
		f.Add(body)
	}
	paths := []string{"/v1/allow", "/v1/peek", "/v1/reserve", "/v1/settle", "/v1/cancel"}
	statuses := []int{200, 400, 403, 404, 410, 413, 422, 429}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			w := send(h, http.MethodPost, path, body, "Content-Type", "application/json")
			if !slices.Contains(statuses, w.Code) {
				t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %q: %s", path, body, w.Body)
			}
		}
	})
}

func TestAFaultEndsOneRequestAndIsCounted(t *testing.T) {
	decider := servertest.Decider(t, panics{}, limits)
	var logs bytes.Buffer
	counted := 0
	log := slog.New(slog.NewTextHandler(&logs, nil))
	s := httptest.NewServer(Recover(New(decider, &Options{Log: log}), log, func() { counted++ }))
	defer s.Close()
	for _, path := range []string{"/v1/allow", "/v1/peek"} {
		res, err := http.Post(s.URL+path, "application/json", strings.NewReader(`{"domain":"d","entries":[{"key":"user","value":"a"}]}`))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 500 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if counted != 2 || !strings.Contains(logs.String(), "/v1/allow") {
		t.Errorf("%d counted; logs: %s", counted, logs.String())
	}
}
