package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a-token-of-enough-length"

// one is access by one token.
var one = Access{Tokens: []string{token}}

const rules = `
domain: d
descriptors:
- {key: user, limits: [3/1h]}
- {key: free, rate_limit: {unlimited: true}}
- {key: day, limits: [9/day@UTC], shadow_mode: true}
`

// A world is an admin port.
type world struct {
	t       *testing.T
	handler http.Handler
	decider *decide.Decider
	logs    *strings.Builder
	token   string // that requests bring
	stats   *stats.Registry
	options Options
}

func begin(t *testing.T, access Access) *world {
	return beginOn(t, access, rules, memstore.New(nil), func() degrade.Report { return degrade.Report{Health: degrade.MemoryHealth()} })
}

// beginOn begins on a store.
func beginOn(t *testing.T, access Access, rules string, store driver.Store, report func() degrade.Report) *world {
	t.Helper()
	w := &world{t: t, logs: &strings.Builder{}, decider: servertest.Decider(t, store, rules)}
	if len(access.Tokens) > 0 {
		w.token = access.Tokens[0]
	}
	log := slog.New(slog.NewTextHandler(w.logs, nil))
	w.stats = stats.New(&stats.Options{Subjects: true})
	w.decider.Observe(w.stats.Observe)
	w.options = Options{
		Guard: NewGuard(access, log), Log: log, Stats: w.stats, Loading: new(Loading), Health: http.NotFoundHandler(),
		Exceptions: exceptions.New(w.decider, nil, "", log), Store: report,
	}
	w.handler = New(w.decider, w.options)
	return w
}

// A reply is a response without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

// Cookies are those that it sets.
func (r *reply) Cookies() []*http.Cookie { return (&http.Response{Header: r.Header}).Cookies() }

// send sends a request with headers, "Name: value", and returns the answer and its body.
func (w *world) send(method, path, body string, headers ...string) (*reply, string) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, text := range headers {
		name, value, _ := strings.Cut(text, ": ")
		r.Header.Set(name, value)
	}
	res := httptest.NewRecorder()
	w.handler.ServeHTTP(res, r)
	return &reply{res.Code, res.Header()}, res.Body.String()
}

// login returns the header of a session.
func (w *world) login() string {
	w.t.Helper()
	res, text := w.send("POST", "/login", "token="+token, "Content-Type: application/x-www-form-urlencoded")
	if len(res.Cookies()) != 1 {
		w.t.Fatalf("login: %d %s", res.StatusCode, text)
	}
	return "Cookie: " + res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
}

// says sends a request and reads its answer, which must have a status.
func (w *world) says(into any, status int, method, path, body string) {
	w.t.Helper()
	res, text := w.send(method, path, body)
	if res.StatusCode != status || json.Unmarshal([]byte(text), into) != nil {
		w.t.Fatalf("%s %s %s: %d %s", method, path, body, res.StatusCode, text)
	}
}

// asks sends a request for a unit and reports whether it was admitted.
func (w *world) asks(key, value string) bool {
	w.t.Helper()
	v, err := w.decider.Decide(w.t.Context(), decide.One("d", []config.Entry{{Key: key, Value: value}}, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	return v[0].Allowed()
}
