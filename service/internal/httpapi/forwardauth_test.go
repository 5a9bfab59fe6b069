package httpapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/wire"
)

const proxyLimits = `
domain: edge
descriptors:
  - {key: remote_address, limits: [2/10s]}
  - {key: path, value: /login, descriptors: [{key: remote_address, cost: 2, limits: [3/1m]}]}
  - {key: service, value: api, limits: [3/10s]}
  - {key: other, algorithm: fixed-window, limits: [1/1m]}
  - {key: x-api-key, limits: [1/10s]}
  - {key: sid, limits: [1/10s]}
  - {key: method, limits: [1/10s]}
  - {key: host, limits: [1/10s]}
  - {key: path, limits: [1/10s]}
  - {key: tried, shadow_mode: true, limits: [1/10s]}
  - {key: closed, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: courtesy, on_unavailable: open, limits: [1/10s]}
`

func proxyHandler(t *testing.T, store driver.Store, log io.Writer) *Handler {
	t.Helper()
	decider := servertest.Decider(t, store, proxyLimits)
	return New(decider, &Options{Log: slog.New(slog.NewTextHandler(log, nil))})
}

func edge(t *testing.T) (*Handler, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 1, 1, 23, 59, 0, 0, time.UTC)}
	return proxyHandler(t, memstore.New(&memstore.Options{Now: c.read}), io.Discard), c
}

// auth asks as a proxy does for a client at 192.0.2.7. An empty value leaves a header out.
func auth(h *Handler, query string, header ...string) *httptest.ResponseRecorder {
	usual := []string{"X-Forwarded-For", "192.0.2.7", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a?b=c", "X-Forwarded-Host", "app.example"}
	r := httptest.NewRequest("GET", "/v1/forward-auth?"+query, nil)
	for i, all := 0, append(usual, header...); i < len(all); i += 2 {
		r.Header.Set(all[i], all[i+1])
		if all[i+1] == "" {
			r.Header.Del(all[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantAuth(t *testing.T, what string, w *httptest.ResponseRecorder, status int, retryAfter, state string) {
	t.Helper()
	if w.Code != status || w.Header().Get("Retry-After") != retryAfter || w.Header().Get("RateLimit") != state {
		t.Errorf("%s: %d, Retry-After %q, RateLimit %q; want %d, %q, %q\n%s",
			what, w.Code, w.Header().Get("Retry-After"), w.Header().Get("RateLimit"), status, retryAfter, state, w.Body)
	}
}

// Two requests that are charged to one subject: the second finds the limit of 1 used up.
func TestForwardAuthCountsTogether(t *testing.T) {
	for _, c := range []struct {
		name, descriptor string
		first, second    []string
		together         bool
	}{
		{"what the client wrote is left of what the proxy saw", "path,remote_address",
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "203.0.113.9, 203.0.113.10, 192.0.2.7"},
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "198.51.100.1,192.0.2.7:4711"}, true},
		{"one IPv6 network", "path,remote_address",
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "2001:db8:0:1::1"},
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "[2001:db8:0:1:ffff::2]:443"}, true},
		{"two IPv6 networks", "path,remote_address",
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "2001:db8:0:1::1"},
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "2001:db8:0:2::1"}, false},
		{"IPv4 within IPv6", "path,remote_address",
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "192.0.2.7"},
			[]string{"X-Forwarded-Uri", "/login", "X-Forwarded-For", "::ffff:192.0.2.7"}, true},
		{"spellings of a path", "path", []string{"X-Forwarded-Uri", "/a/b?x=1"}, []string{"X-Forwarded-Uri", "//a/./%62;v=1/%20?x=2"}, true},
		{"a parent directory", "path", []string{"X-Forwarded-Uri", "/a/b"}, []string{"X-Forwarded-Uri", "/a/c/../b"}, true},
		{"letters", "path", []string{"X-Forwarded-Uri", "/a"}, []string{"X-Forwarded-Uri", "/A"}, false},
		{"letters of which case does not count", "path&path=all", []string{"X-Forwarded-Uri", "/a"}, []string{"X-Forwarded-Uri", "/A"}, true},
		{"parameters that count", "path&path=clean", []string{"X-Forwarded-Uri", "/a"}, []string{"X-Forwarded-Uri", "/a;b"}, false},
		{"spellings of a path that is only cleaned", "path&path=clean", []string{"X-Forwarded-Uri", "/a/b?x=1"}, []string{"X-Forwarded-Uri", "//a/./%62/c/../?x=2"}, true},
		{"a path with its host", "path", []string{"X-Forwarded-Uri", "/a/b"}, []string{"X-Forwarded-Uri", "http://app.example/a/b"}, true},
		{"a path that is none", "path", []string{"X-Forwarded-Uri", "/%zz"}, []string{"X-Forwarded-Uri", "/%zz?a"}, true},
		{"methods", "method", nil, []string{"X-Forwarded-Method", "POST"}, false},
		{"hosts", "host", nil, []string{"X-Forwarded-Host", "other.example"}, false},
		{"spellings of a host", "host", []string{"X-Forwarded-Host", "App.example:8443"}, []string{"X-Forwarded-Host", "app.example."}, true},
		{"no header, and an empty one", "header:X-Api-Key", nil, []string{"X-Api-Key", ""}, true},
		{"headers", "header:X-Api-Key", []string{"X-Api-Key", "a"}, []string{"X-Api-Key", "b"}, false},
		{"one cookie", "cookie:sid", []string{"Cookie", "a=1; sid=x"}, []string{"Cookie", `sid="x"; b=2`}, true},
		{"cookies", "cookie:sid", []string{"Cookie", "a=1; sid=x"}, []string{"Cookie", "a=1; sid=y"}, false},
		{"no cookie, and one of another case", "cookie:sid", nil, []string{"Cookie", "SID=x"}, true},
		{"bytes that are no text", "header:X-Api-Key", []string{"X-Api-Key", "a\xfe"}, []string{"X-Api-Key", "a\xff"}, true},
		{"long values that differ at the end", "header:X-Api-Key", []string{"X-Api-Key", strings.Repeat("a", 4096) + "b"},
			[]string{"X-Api-Key", strings.Repeat("a", 4096) + "c"}, false},
	} {
		h, _ := edge(t)
		query := "domain=edge&descriptor=" + c.descriptor
		first, second := auth(h, query, c.first...), auth(h, query, c.second...)
		if want := map[bool]int{true: 429, false: 200}[c.together]; first.Code != 200 || second.Code != want {
			t.Errorf("%s: %d and %d, want 200 and %d: %s", c.name, first.Code, second.Code, want, second.Body)
		}
	}
}

func TestForwardAuthOfRulesThatDoNotCount(t *testing.T) {
	h, _ := edge(t)
	for range 2 {
		wantAuth(t, "no rule", auth(h, "domain=edge&descriptor=nothing=a"), 200, "", "")
		wantAuth(t, "unlimited", auth(h, "domain=edge&descriptor=free=a"), 200, "", "")
		wantAuth(t, "tried out", auth(h, "domain=edge&descriptor=tried=a"), 200, "", "")
	}
	w := auth(h, "domain=edge&descriptor=closed=a")
	wantAuth(t, "no units", w, 429, "", `"0/1m";r=0;t=0`)
	if strings.Contains(w.Body.String(), "again") {
		t.Errorf("it says that waiting helps: %s", w.Body)
	}
}

func TestForwardAuthSaysWhatIsWrongWithTheProxy(t *testing.T) {
	const right = "domain=edge&descriptor=remote_address"
	for name, c := range map[string]struct {
		query  string
		header []string
		say    string
	}{
		"nothing":                 {"", nil, "domain is missing"},
		"no descriptor":           {"domain=edge", nil, "descriptor is missing"},
		"an unknown domain":       {"domain=e&descriptor=remote_address", nil, `unknown domain "e": the configuration has edge`},
		"two domains":             {right + "&domain=edge", nil, "domain is there 2 times"},
		"an unknown parameter":    {right + "&status=403", nil, "unknown parameter status: there are domain, descriptor, deny, fields and path"},
		"a dialect there is not":  {right + "&fields=draft-99", nil, `fields=draft-99: httplimit: unknown dialect "draft-99"; there are draft-11,`},
		"a fold there is not":     {right + "&path=lower", nil, `path=lower: httplimit: unknown fold of paths "lower"; there are all, keep-case, clean`},
		"a status no proxy takes": {right + "&deny=200", nil, "deny=200: it is 401, 403 or 429"},
		"an unknown entry":        {"domain=edge&descriptor=peer", nil, `"peer" is none: it is host, method, path, remote_address, header:NAME, cookie:NAME, or KEY=VALUE`},
		"a header without name":   {"domain=edge&descriptor=header:", nil, `"header:" is none`},
		"many descriptors":        {right + strings.Repeat("&descriptor=path", 4), nil, "5 descriptors: one decision spans at most 4"},
		"many entries":            {"domain=edge&descriptor=path" + strings.Repeat(",path", wire.MaxEntries), nil, "at most 32"},
		"not a query":             {"domain=%zz", nil, "the parameters of the URL"},
		"no address":              {right, []string{"X-Forwarded-For", ""}, "X-Forwarded-For is missing"},
		"an address that is not":  {right, []string{"X-Forwarded-For", "192.0.2.7, unix:"}, `ends in "unix:"`},
		"no path":                 {"domain=edge&descriptor=path", []string{"X-Forwarded-Uri", ""}, "X-Forwarded-Uri is missing"},
		"no method":               {"domain=edge&descriptor=method", []string{"X-Forwarded-Method", ""}, "X-Forwarded-Method is missing"},
		"no host":                 {"domain=edge&descriptor=host", []string{"X-Forwarded-Host", ""}, "X-Forwarded-Host is missing"},
	} {
		var log strings.Builder
		w := auth(proxyHandler(t, memstore.New(nil), &log), c.query, c.header...)
		var answer struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 400 || !strings.Contains(answer.Error, c.say) {
			t.Errorf("%s: %d %s, want %q", name, w.Code, w.Body, c.say)
		}
		if !strings.Contains(log.String(), "forward-auth") { // nginx does not show the answer
			t.Errorf("%s: it is not in the log: %s", name, &log)
		}
	}
}

// A client chooses neither which of two values counts, nor what the log is filled with.
func TestForwardAuthRefusesARepeatedHeader(t *testing.T) {
	var log strings.Builder
	h := proxyHandler(t, memstore.New(nil), &log)
	for entry, says := range map[string]string{"header:X-Api-Key": "X-Api-Key is there 2 times", "cookie:sid": "sid is there 2 times"} {
		r := httptest.NewRequest("GET", "/v1/forward-auth?domain=edge&descriptor="+entry, nil)
		r.Header["X-Api-Key"], r.Header["Cookie"] = []string{"a", "b"}, []string{"sid=a", "b=c; sid=d"}
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 400 || !strings.Contains(w.Body.String(), says) || log.Len() != 0 {
			t.Errorf("%d %s, log %s", w.Code, w.Body, &log)
		}
	}
}

// A path that leads to different places on different servers is refused, and the client cannot fill the log with it.
func TestForwardAuthRefusesAnAmbiguousPath(t *testing.T) {
	var log strings.Builder
	h := proxyHandler(t, memstore.New(nil), &log)
	for _, uri := range []string{"/x/..;/login", "/x/%252e%252e/login", "/login%00", "/x#/../login"} {
		w := auth(h, "domain=edge&descriptor=path,remote_address", "X-Forwarded-Uri", uri)
		if w.Code != 400 || log.Len() != 0 {
			t.Errorf("%s: %d %s, log %s", uri, w.Code, w.Body, &log)
		}
	}
}

// The policy of the rule is the answer while the store fails, whatever the status of a refusal.
func TestForwardAuthWhileTheStoreFails(t *testing.T) {
	store := servertest.Must(failover.New(broken{}, &failover.Options{Local: memstore.New(nil)}))(t)
	h := proxyHandler(t, store, io.Discard)
	w := auth(h, "domain=edge&descriptor=remote_address&deny=403")
	wantAuth(t, "closed", w, 503, w.Header().Get("Retry-After"), "")
	if strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("it discloses where the store is: %s", w.Body)
	}
	for range 2 {
		wantAuth(t, "open", auth(h, "domain=edge&descriptor=courtesy=a"), 200, "", "") // nothing was counted
	}
}

// A fixed window's time runs to its end, on the store's clock and in every dialect.
func TestForwardAuthSpeaksEveryDialect(t *testing.T) {
	h, c := edge(t)
	c.now = time.Date(2026, 1, 1, 23, 59, 20, 0, time.UTC)
	for fields, want := range map[string]string{
		"":                            "RateLimit: \"1/1m\";r=0;t=40",
		"&fields=draft-07":            "RateLimit: limit=1, remaining=0, reset=40",
		"&fields=x-ratelimit-unix":    "X-RateLimit-Reset: 1767312000",
		"&fields=x-ratelimit-rfc3339": "X-RateLimit-Reset: 2026-01-02T00:00:00Z",
	} {
		w := auth(h, "domain=edge&descriptor=other="+strings.TrimPrefix(fields, "&fields=")+"x"+fields)
		name, value, _ := strings.Cut(want, ": ")
		if got := w.Header().Get(name); w.Code != 200 || got != value {
			t.Errorf("%q: %d, %s: %s, want %s", fields, w.Code, name, got, value)
		}
	}
	// A limit of no units refuses without the store: the reset is that of this process's clock.
	w := auth(h, "domain=edge&descriptor=closed=x&fields=x-ratelimit-unix")
	reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
	if since := time.Since(time.Unix(reset, 0)); err != nil || w.Code != 429 || since.Abs() > time.Hour {
		t.Errorf("refused without the store: %d, %v (%v)", w.Code, w.Header(), err)
	}
	w = auth(h, "domain=edge&descriptor=other=none&fields=none")
	if w.Code != 200 || w.Header().Get("RateLimit") != "" {
		t.Errorf("fields=none: %d, %v", w.Code, w.Header())
	}
}

func TestForwardAuthOfABannedClient(t *testing.T) {
	h, _ := edge(t)
	h.decider.Except([]decide.Exception{{
		Domain: "edge", Entries: []config.Entry{{Key: "remote_address", Value: "192.0.2.7"}}, Until: time.Now().Add(time.Hour),
	}})
	w := auth(h, "domain=edge&descriptor=remote_address")
	wantAuth(t, "banned", w, 429, "3600", "")
	if got := w.Header().Get("RateLimit-Policy"); got != "" || !strings.Contains(w.Body.String(), `"violated-policies":["ban"]`) {
		t.Errorf("RateLimit-Policy %q, %s", got, w.Body)
	}
	wantAuth(t, "another client", auth(h, "domain=edge&descriptor=remote_address", "X-Forwarded-For", "192.0.2.8"), 200, "", `"2/10s";r=1;t=10`)
}
