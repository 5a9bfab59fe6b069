package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/exceptions"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
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

// use makes other rules current.
func (w *world) use(rules string) {
	w.t.Helper()
	cfg := servertest.Must(config.Parse(config.Defaults{}, false, config.File{Name: "y.yaml", Text: []byte(rules)}))(w.t)
	servertest.Check(w.t, w.decider.Use(cfg))
}

// An exception is an override or a ban as the port describes it.
type exception struct {
	ID, Subject, By, Reason string
	Entries                 []config.Entry
	Limits                  []string
	Expires                 wire.Instant
	ExpiresIn               wire.Seconds `json:"expires_in"`
	InEffect                bool         `json:"in_effect"`
	Why                     *string
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
	return servertest.Must(w.decider.Decide(w.t.Context(), decide.One("d", []config.Entry{{Key: key, Value: value}}, nil)))(w.t)[0].Allowed()
}

// away is a store that a test takes away.
type away struct {
	*memstore.Store
	gone atomic.Bool
}

func (a *away) Do(ctx context.Context, b *driver.Batch) error {
	if a.gone.Load() && b.Ops[0].Kind == driver.Charge {
		return &sash.StoreError{Err: errors.New("LOADING Redis is loading the dataset in memory")}
	}
	return a.Store.Do(ctx, b)
}

// outage returns a world on a store with failure modes, which can be taken away, as one of two instances.
func outage(t *testing.T) (*world, *away, *failover.Store) {
	t.Helper()
	redis := &away{Store: memstore.New(nil)}
	store := servertest.Must(failover.New(redis, &failover.Options{Local: memstore.New(nil), Instances: func() int { return 2 }}))(t)
	w := beginOn(t, one, `
domain: d
descriptors:
- {key: closed, limits: [20/1h]}
- {key: open, limits: [20/1h], on_unavailable: open}
- {key: local, limits: [20/1h], on_unavailable: local}
`, store, func() degrade.Report {
		r := degrade.Report{Health: degrade.Health{Status: "ok", Store: store.State().String(), Instances: 2}, Address: "redis.example:6379"}
		if store.State() != failover.Up {
			r.Status, r.Cause, r.Since = "degraded", "loading", time.Now()
		}
		return r
	})
	return w, redis, store
}

// While the store is away the answer on a subject has no number that was not read: it says from whom what is known is,
// which store does not answer, and why.
func TestASubjectInAnOutage(t *testing.T) {
	w, redis, store := outage(t)
	ask := func(key string, times int) {
		for range times {
			_, _ = w.decider.Decide(t.Context(), decide.One("d", []config.Entry{{Key: key, Value: "ann"}}, nil))
		}
	}
	type answer struct {
		Limits        json.RawMessage
		Source, Cause *string
		At            *time.Time
		Store         struct{ Status, Address, Reason string }
	}
	look := func(key, value string) (now answer) {
		w.says(&now, 200, "GET", "/admin/v1/subject?domain=d&entry="+key+":"+value, "")
		return now
	}
	keys := []string{"closed", "open", "local"}
	for _, key := range keys {
		ask(key, 7)
		if now := look(key, "ann"); *now.Source != "store" || now.Cause != nil || now.At == nil || !strings.Contains(string(now.Limits), `"remaining":13,"used":7`) {
			t.Errorf("%s: %+v %s", key, now, now.Limits)
		}
	}
	redis.gone.Store(true)
	for _, key := range keys {
		ask(key, 30)
	}
	for store.State() == failover.Up { // which takes more than a moment of failures
		ask("closed", 1)
	}
	const unknown = `[{"name":"20/1h","units":20,"window":3600,"remaining":null,"used":null,"release_after":null,"reset_after":null}]`
	for _, key := range keys {
		now := look(key, "ann")
		if *now.Cause != "loading" && *now.Cause != "down" || now.Store.Status != "degraded" || now.Store.Address != "redis.example:6379" ||
			now.Store.Reason != "is loading its data" {
			t.Errorf("%s: why is %s, %+v", key, *now.Cause, now.Store)
		}
		if key == "local" {
			if *now.Source != "local" || !strings.Contains(string(now.Limits), `"remaining":0,"share":10,"used":10`) {
				t.Errorf("local: %+v %s", now, now.Limits)
			}
			continue
		}
		if *now.Source != "policy" || now.At != nil || string(now.Limits) != unknown {
			t.Errorf("%s: %+v %s", key, now, now.Limits)
		}
	}
	if now := look("open", "stranger"); string(now.Limits) != unknown {
		t.Errorf("of whom the store said nothing: %s", now.Limits)
	}
}
