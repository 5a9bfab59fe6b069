package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/rls"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

func readDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc := servertest.Must(openapi3.NewLoader().LoadFromData(document))(t)
	servertest.Check(t, doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()))
	return doc
}

// A server is a running one, with what the document says of it.
type server struct {
	doc  *openapi3.T
	http *httptest.Server
	seen map[string]bool // "POST /v1/allow 200"
}

type exchange struct {
	method, path, body string
	header             []string
	wrong              bool // the document does not allow the request
	status             int
}

// do sends a request, holds it and its answer against the document, and returns the body.
func (s *server) do(t *testing.T, x exchange) string {
	t.Helper()
	name := x.method + " " + x.path
	ctx := t.Context()
	newRequest := func() *http.Request {
		req := servertest.Must(http.NewRequestWithContext(ctx, x.method, s.http.URL+x.path, strings.NewReader(x.body)))(t)
		if x.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(x.header); i += 2 {
			req.Header.Set(x.header[i], x.header[i+1])
		}
		return req
	}
	path, _, _ := strings.Cut(x.path, "?")
	item := s.doc.Paths.Value(path)
	if item == nil {
		t.Fatalf("%s is not in the document", x.path)
	}
	input := &openapi3filter.RequestValidationInput{Request: newRequest(), Options: &openapi3filter.Options{
		IncludeResponseStatus: true,
		AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
	}}
	operation := item.GetOperation(x.method)
	if operation != nil {
		input.Route = &routers.Route{Spec: s.doc, Path: x.path, PathItem: item, Method: x.method, Operation: operation}
		if err := openapi3filter.ValidateRequest(ctx, input); (err != nil) != x.wrong {
			t.Errorf("%s %s: the document says %v of the request", name, wire.Clip(x.body), err)
		}
	} else { // another method: answered as every operation of the path says
		for _, operation = range item.Operations() {
			input.Route = &routers.Route{Spec: s.doc, Path: x.path, PathItem: item, Method: x.method, Operation: operation}
		}
	}
	res, err := s.http.Client().Do(newRequest())
	servertest.Check(t, err)
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	servertest.Check(t, err)
	if res.StatusCode != x.status {
		t.Errorf("%s %s: %d %s, want %d", name, wire.Clip(x.body), res.StatusCode, body, x.status)
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header, Options: input.Options,
	}
	if err := openapi3filter.ValidateResponse(ctx, answer.SetBodyBytes(body)); err != nil {
		t.Errorf("%s %s: the answer %d %s is not as documented: %v", name, wire.Clip(x.body), res.StatusCode, body, err)
	}
	for method := range item.Operations() {
		s.seen[fmt.Sprint(method, " ", path, " ", res.StatusCode)] = true
	}
	return string(body)
}

// gone is a store that fails in all that is asked of it.
type gone struct{ broken }

func (gone) Powers() driver.Powers { return driver.CanSettle | driver.CanExtend }

func (g gone) Do(ctx context.Context, b *driver.Batch) error {
	if kind := b.Ops[0].Kind; kind == driver.Settle || kind == driver.Extend {
		return io.EOF
	}
	return g.broken.Do(ctx, b)
}

type panics struct{ driver.Store }

// Every operation is asked what it should be and what it should not, on a running server. Requests and answers are
// as the document says, and every status that it gives is seen.
func TestTheDocumentIsWhatTheHandlersDo(t *testing.T) {
	doc, seen := readDocument(t), make(map[string]bool)
	over := func(store driver.Store, opts *Options) (*server, *Handler) {
		decider := servertest.Decider(t, store, limits+"  - {key: strict, count_refused: true, limits: [2/10s]}\n  - {key: planet, scope: global, limits: [90/10m]}\n")
		if opts == nil {
			opts = &Options{}
		}
		opts.Log = slog.New(slog.DiscardHandler)
		opts.Timeout = 100 * time.Millisecond
		opts.JSON = rls.New(decider, &rls.Options{Access: opts.Access, Log: opts.Log, Timeout: opts.Timeout})
		h := New(decider, opts)
		s := &server{doc, httptest.NewServer(h), seen}
		t.Cleanup(s.http.Close)
		return s, h
	}
	const user, strict = `{"domain":"d","entries":[{"key":"user","value":"a"}]`, `{"domain":"d","entries":[{"key":"strict","value":"a"}]`
	now := func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) } // stands still
	s, h := over(memstore.New(&memstore.Options{Now: now}), &Options{Tokens: tokensAt(now, "one")})
	down, _ := over(gone{}, &Options{Tokens: tokensAt(now, "one"), Ready: func(context.Context) error { return io.EOF }})
	fault, _ := over(panics{}, nil)
	drained := make(chan struct{})
	close(drained)
	closed, _ := over(memstore.New(nil), &Options{Access: servertest.Gate(t, clientWith("allow: [decide], domains: [e]"))})
	leaving, _ := over(memstore.New(nil), &Options{Draining: drained})

	for _, path := range []string{"/v1/allow", "/v1/peek", "/v1/reserve"} {
		subject := strings.ReplaceAll(user, `"a"`, `"`+path+`"`)
		for _, x := range []exchange{
			{body: subject + `}`, status: 200},
			{body: subject + `,"cost":1,"id":"job 1"}`, status: 200},
			{body: `{"domain":"d","entries":[{"key":"nobody"}]}`, status: 200},
			{body: `{"domain":"d","entries":[{"key":"watched","value":null}]}`, status: 200},
			{body: `{"domain":"d","entries":[{"key":"day","value":"` + path + `"}],"cost":2}`, status: 200},
			{body: subject + `}`, header: []string{"Sec-Fetch-Site", "cross-site"}, status: 403},
			{body: `{"domain":"d","of":"any","parts":[{"entries":[{"key":"nobody"}]}]}`, status: map[bool]int{true: 400, false: 200}[path == "/v1/peek"]},
			{body: `{"domain":"d","parts":[{"entries":[{"key":"nobody"}]},{"entries":[{"key":"day","value":"2` + path + `"}],"cost":2}]}`, status: 200},
			{body: `{"domain":"d","parts":[` + strings.Repeat(`{"entries":[{"key":"nobody"}]},`, 4) + `{"entries":[{"key":"nobody"}]}]}`, status: 422},
			{body: `{"domain":"d","parts":[]}`, wrong: true, status: 400},
			{body: `{"domain":"d","of":"one","parts":[{"entries":[{"key":"nobody"}]}]}`, wrong: true, status: 400},
			{body: `{"domain":"d","of":"any","entries":[{"key":"nobody"}]}`, wrong: true, status: 400},
			{body: subject + `,"parts":[{"entries":[{"key":"nobody"}]}]}`, wrong: true, status: 400},
			{body: subject + `,"id":""}`, wrong: true, status: 400},
			{body: subject + `,"cost":0}`, wrong: true, status: 400},
			{body: `{"domain":"d","entries":[]}`, wrong: true, status: 400},
			{body: `{"entries":[{"key":"user"}]}`, wrong: true, status: 400},
			{body: `{"domain":"e","entries":[{"key":"user"}]}`, status: 404},
			{body: subject + `}` + strings.Repeat(" ", wire.MaxBody), status: 413},
			{body: subject + `}`, header: []string{"Content-Type", "text/xml"}, wrong: true, status: 415},
		} {
			x.method, x.path = http.MethodPost, path
			s.do(t, x)
		}
		s.do(t, exchange{method: http.MethodGet, path: path, status: 405})
		s.do(t, exchange{method: http.MethodPost, path: path, body: user + `,"cost":4}`, status: 422})
		down.do(t, exchange{method: http.MethodPost, path: path, body: user + `}`, status: 503})
		closed.do(t, exchange{method: http.MethodPost, path: path, body: user + `}`, status: 401})
		closed.do(t, exchange{method: http.MethodPost, path: path, body: user + `}`, header: []string{"Authorization", "Bearer TOKEN"}, status: 403})
		refused := 429
		if path == "/v1/peek" {
			s.do(t, exchange{method: http.MethodPost, path: "/v1/allow", body: subject + `,"cost":3}`, status: 200})
			refused = 200
		}
		s.do(t, exchange{method: http.MethodPost, path: path, body: subject + `,"cost":3}`, status: refused})
	}
	s.do(t, exchange{method: http.MethodPost, path: "/v1/reserve", body: strict + `}`, status: 422})
	planet := s.do(t, exchange{method: http.MethodPost, path: "/v1/allow", body: `{"domain":"d","entries":[{"key":"planet"}]}`, status: 200})
	if !strings.Contains(planet, `"scope":"global"`) {
		t.Errorf("a limit of all regions does not say so: %s", planet)
	}

	for _, path := range []string{"/v1/settle", "/v1/cancel", "/v1/extend"} {
		used := map[string]string{"/v1/settle": `,"used":1`}[path]
		settle := func(s *server, token string, status int) {
			s.do(t, exchange{method: http.MethodPost, path: path, body: `{"token":"` + token + `"` + used + `}`, status: status})
		}
		at := now()
		policy := servertest.Must(sash.NewPolicy(nil, sash.PerMinute(5)))(t)
		local := decide.Reservation{Key: "k", Units: 2, At: at, Policy: policy, Source: sash.FromLocal, ID: "x", Instance: "another"}
		old := decide.Reservation{Key: "k", Units: 2, At: at.Add(-time.Hour), Policy: policy, ID: "x"}
		fresh := decide.Reservation{Key: "k", Units: 2, At: at, Policy: policy, ID: "x"}
		settle(s, h.opts.Tokens.Seal(fresh), map[bool]int{true: 410, false: 200}[path == "/v1/extend"]) // which the store does not have
		settle(down, h.opts.Tokens.Seal(fresh), 503)
		settle(s, h.opts.Tokens.Seal(decide.Reservation{}), 200)
		settle(s, "guessed", 403)
		settle(closed, "guessed", 401)
		settle(s, wire.NewTokens().Seal(fresh), 403)
		settle(s, h.opts.Tokens.Seal(local), 409)
		settle(s, h.opts.Tokens.Seal(old), 410)
		for _, x := range []exchange{
			{body: `{}`, wrong: true, status: 400},
			{body: `{"token":"` + strings.Repeat("x", wire.MaxToken+1) + `"` + used + `}`, wrong: true, status: 400},
			{body: `{"token":"x","used":-1}`, wrong: true, status: map[bool]int{true: 403, false: 400}[path == "/v1/settle"]},
			{body: `{"token":"x"` + used + `}` + strings.Repeat(" ", wire.MaxBody), status: 413},
			{body: `{"token":"x"` + used + `}`, header: []string{"Content-Encoding", "br"}, status: 415},
		} {
			x.method, x.path = http.MethodPost, path
			s.do(t, x)
		}
		s.do(t, exchange{method: http.MethodDelete, path: path, status: 405})
	}
	s.do(t, exchange{method: http.MethodPost, path: "/v1/settle", body: `{"token":"x"}`, wrong: true, status: 400})

	const forward = "/v1/forward-auth?domain=d&descriptor="
	for _, x := range []exchange{
		{path: forward + "user%3Dproxied&descriptor=day%3Dproxied", status: 200},
		{path: forward + "nobody%3Da", status: 200},
		{path: forward + "heavy%3Da", status: 200},
		{path: forward + "heavy%3Da", status: 429},
		{path: forward + "heavy%3Da&deny=403", status: 403},
		{path: forward + "heavy%3Da&deny=401", status: 401},
		{path: forward + "heavy%3Da&deny=404", wrong: true, status: 400},
		{path: "/v1/forward-auth?domain=d", wrong: true, status: 400},
		{path: strings.Replace(forward, "=d", "=", 1) + "heavy%3Da", wrong: true, status: 400},
	} {
		x.method, x.header = http.MethodGet, []string{"X-Forwarded-For", "192.0.2.7"}
		s.do(t, x)
	}
	s.do(t, exchange{method: http.MethodGet, path: forward + "heavy%3Da", status: 400})
	down.do(t, exchange{method: http.MethodGet, path: forward + "heavy%3Da", header: []string{"X-Forwarded-For", "192.0.2.7"}, status: 503})

	closed.do(t, exchange{method: http.MethodGet, path: forward + "heavy%3Da", header: []string{"X-Forwarded-For", "192.0.2.7"}, status: 401})
	closed.do(t, exchange{method: http.MethodGet, path: forward + "heavy%3Da", header: []string{"X-Sash-Token", "TOKEN"}, status: 403})

	const envoy = `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"json"}]}],"hitsAddend":3}`
	for _, x := range []exchange{
		{method: http.MethodPost, path: "/json", body: envoy, status: 200},
		{method: http.MethodPost, path: "/json", body: envoy, status: 429},
		{method: http.MethodPost, path: "/json", body: `{}`, status: 400},
		{method: http.MethodPost, path: "/json", body: envoy, header: []string{"Origin", "https://page.example"}, status: 403},
		{method: http.MethodPost, path: "/json", body: envoy + strings.Repeat(" ", 8<<20), status: 413},
		{method: http.MethodGet, path: "/healthz", status: 200},
		{method: http.MethodPost, path: "/healthz", status: 405},
		{method: http.MethodGet, path: "/healthcheck", status: 200},
		{method: http.MethodGet, path: "/openapi.yaml", status: 200},
		{method: http.MethodPost, path: "/openapi.yaml", status: 405},
	} {
		s.do(t, x)
	}
	leaving.do(t, exchange{method: http.MethodGet, path: "/healthz", status: 503})
	leaving.do(t, exchange{method: http.MethodGet, path: "/healthcheck", status: 500})
	down.do(t, exchange{method: http.MethodGet, path: "/healthcheck", status: 500})
	down.do(t, exchange{method: http.MethodPost, path: "/json", body: envoy, status: 503})
	closed.do(t, exchange{method: http.MethodPost, path: "/json", body: envoy, status: 401})
	closed.do(t, exchange{method: http.MethodPost, path: "/json", body: envoy, header: []string{"Authorization", "Bearer TOKEN"}, status: 403})
	fault.do(t, exchange{method: http.MethodPost, path: "/json", body: envoy, status: 500})

	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if name := method + " " + path + " " + status; !seen[name] {
					t.Errorf("%s is documented, and was not seen", name)
				}
			}
		}
	}
}

// Every path of the handler is in the document, and the other way round.
func TestTheDocumentHasThePathsOfTheHandler(t *testing.T) {
	h, _ := virtual(t)
	h = New(h.decider, &Options{JSON: http.NotFoundHandler()})
	documented := slices.Sorted(maps.Keys(readDocument(t).Paths.Map()))
	if handled := slices.Sorted(maps.Keys(h.paths)); !slices.Equal(documented, handled) {
		t.Errorf("documented are\n\t%v, handled\n\t%v", documented, handled)
	}
	if w := send(h, http.MethodGet, "/openapi.yaml", ""); !bytes.Equal(w.Body.Bytes(), document) || w.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("served as %q: %s", w.Header().Get("Content-Type"), w.Body)
	}
}
