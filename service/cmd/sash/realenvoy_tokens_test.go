//go:build envoy

package main

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A vendor is the API of a language model. It logs the tokens that it serves.
type vendor struct {
	port string

	mu     sync.Mutex
	served int64 // guarded by mu
	bodies []string
}

// startVendor streams an answer of x-chunks pieces, 50 ms apart, whose usage is x-use tokens; or fails with x-fail.
func startVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("x-fail") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var use int64
		_, _ = fmt.Sscan(r.Header.Get("x-use"), &use)
		v.mu.Lock()
		v.served += use
		v.bodies = append(v.bodies, string(body))
		v.mu.Unlock()
		var out io.Writer = w
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			out = gzip.NewWriter(w)
		}
		for range 6 {
			fmt.Fprint(out, "data: {\"choices\":[]}\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
		as := cmp.Or(r.Header.Get("x-usage-as"), "usage") // in the form of another provider
		fmt.Fprintf(out, "data: {%q:{\"prompt_tokens\":%d,\"completion_tokens\":10}}\n\ndata: [DONE]\n\n", as, use-10)
	}))
	t.Cleanup(server.Close)
	v.port = portOf(server.Listener.Addr().String())
	return v
}

// tokenEnvoy starts Envoy with the filters of the example, before services with the rules of the documentation for 1,000 tokens.
func tokenEnvoy(t *testing.T, v *vendor, services ...*service) *realEnvoy {
	t.Helper()
	return startEnvoy(t, tokenConfig(t, v, services...))
}

func tokenConfig(t *testing.T, v *vendor, services ...*service) string {
	t.Helper()
	return refit(t, envoyConfig(t, &upstream{port: v.port}, services...), func(all []any, _ map[string]any) []any {
		return append(tokenFilters(t), all[len(all)-1])
	})
}

// tokenFilters are those of the example.
func tokenFilters(t *testing.T) (filters []any) {
	t.Helper()
	text := edited(t, string(readFile(t, examples+"/tokens/envoy.yaml")), "timeout: 1s", "timeout: 20s")
	refit(t, text, func(all []any, _ map[string]any) []any {
		filters = all[:len(all)-1]
		return all
	})
	return filters
}

// tokenDocs are the rules of the documentation, with other limits.
func tokenDocs(t *testing.T, changes ...string) string {
	t.Helper()
	return edited(t, documented(t, "\n## Token budgets\n")[0], changes...)
}

func tokenRules(t *testing.T) string {
	return tempFile(t, "policy.yaml", tokenDocs(t, "100000/1m", "1000/1m"))
}

// completes sends a request that reserves 200 tokens, and begins to read the response. It uses as many.
func (e *realEnvoy) completes(user string, use int, headers ...string) *http.Response {
	text := `{"model":"m","stream":true,"max_tokens":100,"messages":""}`
	text = strings.Replace(text, `""`, `"`+strings.Repeat("x", 100-len(text))+`"`, 1)
	url := "http://" + e.address + "/v1/chat/completions"
	req := servertest.Must(http.NewRequestWithContext(e.t.Context(), http.MethodPost, url, strings.NewReader(text)))(e.t)
	req.Header.Set("x-user", user)
	req.Header.Set("x-use", fmt.Sprint(use))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := e.clients[1].Do(req)
	if err != nil {
		e.t.Errorf("Envoy does not answer: %v", err)
		return &http.Response{Body: http.NoBody}
	}
	return res
}

func finish(res *http.Response) (body string, err error) {
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func (p *service) tokensLeft(t *testing.T, user string, want int) {
	t.Helper()
	servertest.Wait(t, fmt.Sprintf("%s has not %d tokens left", user, want), func() bool {
		_, said := post(t, p.url+"/v1/peek", subject("ai", "x-user", user))
		return said["remaining"] == float64(want)
	})
}

// 1,000 tokens a minute, and 20 streams of 200 at once, through two instances: the vendor serves 1,000. What responses leave of
// their estimates is used by others.
func TestRealEnvoyTokenBudget(t *testing.T) {
	redis := redistest.Start(t)
	env := []string{"SASH_TOKEN_KEY=" + strings.Repeat("k", 32)} // a response may go to the other instance
	flags := append([]string{"--config", tokenRules(t), "--redis", redis.Addr(), "--budget", patience}, freePorts...)
	a, b := serveIn(t, env, flags...), serveIn(t, env, flags...)
	v := startVendor(t)
	e := tokenEnvoy(t, v, a, b)
	burst := func(user string, use int) (admitted int) {
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 20 {
			all.Go(func() {
				res := e.completes(user, use)
				body, err := finish(res)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case res.StatusCode == http.StatusOK && strings.HasSuffix(body, "data: [DONE]\n\n") && res.Header.Get("RateLimit") != "":
					admitted++
				case res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || res.Header.Get("RateLimit") == "" ||
					!json.Valid([]byte(body)) || !strings.Contains(body, `"rate_limit_error"`):
					t.Errorf("%d %s with %v", res.StatusCode, body, res.Header)
				}
			})
		}
		all.Wait()
		return admitted
	}
	if n := burst("ann", 200); n != 5 || v.served != 1000 {
		t.Errorf("%d streams of 200 tokens, and the vendor served %d", n, v.served)
	}
	for i, want := range []int{5, 2, 1} { // 500 are left, 300, 200
		if n := burst("bob", 100); n != want {
			t.Errorf("burst %d: %d streams of 100 tokens, not %d", i+1, n, want)
		}
		a.tokensLeft(t, "bob", []int{500, 300, 200}[i])
	}
	if n := e.stat("http.web.ext_proc.failure_mode_allowed"); n != 0 {
		t.Errorf("%d passed uncounted", n)
	}
	if !strings.Contains(v.bodies[0], `"include_usage":true`) {
		t.Errorf("the vendor got %s", v.bodies[0])
	}
}

func TestRealEnvoyTokensOfWhatEndsEarly(t *testing.T) {
	p := serve(t, "--config", tokenRules(t), "--budget", patience)
	v := startVendor(t)
	e := tokenEnvoy(t, v, p)

	res := e.completes("zip", 30, "Accept-Encoding", "gzip")
	if body, err := finish(res); err != nil || !strings.HasPrefix(body, "data: ") {
		t.Errorf("%q, %v", body, err)
	}
	p.tokensLeft(t, "zip", 970)

	res = e.completes("gone", 30)
	_ = res.Body.Close() // before the usage
	p.tokensLeft(t, "gone", 800)

	if res := e.completes("broken", 30, "x-fail", "1"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d", res.StatusCode)
	}
	p.tokensLeft(t, "broken", 1000)
	p.tokensLeft(t, "gone", 800)
}

// Where a filter does not pass the metadata on, responses settle nothing, and this is counted. Responses to requests without a budget, and
// those of Envoy itself, are not.
func TestRealEnvoyTokensWithoutMetadata(t *testing.T) {
	for _, c := range []struct {
		name, missing, instead string
		left, counted          int
	}{
		{"the example", "sash", "sash", 940, 0},
		{"the first filter", "receiving_namespaces", "forwarding_namespaces", 600, 3},
		{"the second filter", "forwarding_namespaces", "receiving_namespaces", 600, 3},
	} {
		p := serveInline(t, "domain: ai\ndescriptors: [{key: x-user, value: ann, limits: [1000/1m], tokens: {format: openai}}]\n")
		e := startEnvoy(t, edited(t, tokenConfig(t, startVendor(t), p), c.missing, c.instead))
		_ = e.post(0, "/v1/chat/completions", 2<<20) // 413
		for _, user := range []string{"ann", "bob", "ann"} {
			_, _ = finish(e.completes(user, 30))
		}
		p.tokensLeft(t, "ann", c.left)
		p.shows(t, "/metrics", fmt.Sprintf("\nsash_tokens_unsettled_total %d\n", c.counted))
		if logged := strings.Contains(p.logs.String(), "forwarding_namespaces"); logged != (c.counted > 0) {
			t.Errorf("%s: the log has %s", c.name, p.logs)
		}
	}
}

func TestRealEnvoyTokensWithTrailers(t *testing.T) {
	e := tokenEnvoy(t, startVendor(t), serve(t, "--config", tokenRules(t), "--budget", patience))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	req := servertest.Must(http.NewRequest(http.MethodPost, "http://"+e.address+"/v1/chat/completions", strings.NewReader(`{"max_tokens":1}`)))(t)
	req.Header.Set("x-user", "ann")
	req.Trailer = http.Header{"X-Sum": {"1"}}
	body, err := finish(servertest.Must(transport.RoundTrip(req))(t))
	if err != nil || !strings.Contains(body, "trailers") {
		t.Errorf("%q, %v", body, err)
	}
}

// A service that stops or is killed cuts no stream. Then nothing passes that is not counted.
func TestRealEnvoyTokensWhenTheServiceEnds(t *testing.T) {
	flags := []string{"--config", tokenRules(t), "--budget", patience, "--drain-delay", "0s"}
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP} {
		p := spawn(t, nil, flags...)
		v := startVendor(t)
		e := tokenEnvoy(t, v, p)
		res := e.completes("ann", 30)
		servertest.Check(t, p.cmd.Process.Signal(how))
		if body, err := finish(res); err != nil || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%v: %q, %v", how, body, err)
		}
		servertest.Wait(t, "requests pass", func() bool {
			res := e.completes("ann", 30)
			_, _ = finish(res)
			return res.StatusCode == http.StatusServiceUnavailable
		})
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
}
