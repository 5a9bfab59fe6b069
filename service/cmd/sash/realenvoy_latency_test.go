//go:build envoy

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/sash/service/internal/servertest"
)

// latencyLimit is the rate limit filter with the descriptors that the filter of the documentation has.
const latencyLimit = denying + `domain: ai
rate_limits:
- actions: [{request_headers: {header_name: x-user, descriptor_key: x-user}}]
- actions: [{generic_key: {descriptor_key: account, descriptor_value: all}}]
`

// A decision about tokens takes Envoy two messages, the headers and the body of a request, and one of the rate limit filter takes one. One
// Envoy has a listener without a decision and one with either filter. Requests go to each in turn, and medians are compared: of the time
// until the vendor has the request, from then until the client has the first byte, and of all.
func TestRealEnvoyTokenLatency(t *testing.T) {
	arrived := make(chan time.Time, 1)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- time.Now()
		const usage = `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
		if r.Header.Get("x-stream") == "" {
			_, _ = io.WriteString(w, usage)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 {
			_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		_, _ = io.WriteString(w, "data: "+usage+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(vendor.Close)
	p := serve(t, "--config", tempFile(t, "policy.yaml", edited(t, tokenDocs(t)[0], "100000/1m", "1000000000/1m", "500/1m", "1000000000/1m")), "--budget", patience)
	base := envoyConfig(t, &upstream{port: portOf(vendor.Listener.Addr().String())}, p)
	var root, tokens map[string]any
	servertest.Check(t, yaml.Unmarshal([]byte(withFilter(t, base, latencyLimit)), &root))
	servertest.Check(t, yaml.Unmarshal([]byte(strings.Replace(tokenDocs(t)[1], "message_timeout: 1s", "message_timeout: 20s", 1)), &tokens))
	var listeners []any
	names := []string{"direct", "limit", "tokens"}
	for _, name := range names {
		var web map[string]any // a copy
		servertest.Check(t, yaml.Unmarshal(servertest.Must(yaml.Marshal(at(root, "static_resources", "listeners", 0)))(t), &web))
		manager := at(web, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)
		filters := list(manager, "http_filters")
		manager["http_filters"] = map[string][]any{
			"direct": filters[len(filters)-1:], "limit": filters[len(filters)-2:], "tokens": {tokens, filters[len(filters)-1]},
		}[name]
		web["name"] = "web-" + name
		listeners = append(listeners, web)
	}
	first := listeners[0].(map[string]any)
	first["name"] = "web"
	at(root, "static_resources").(map[string]any)["listeners"] = listeners
	e := startEnvoy(t, string(servertest.Must(yaml.Marshal(root))(t)))
	_, text := get(t, e.admin+"/listeners")
	addresses := regexp.MustCompile(`web[a-z-]*::(\S+)`).FindAllStringSubmatch(text, -1)

	for _, stream := range []string{"", "1"} {
		decided, firsts, totals := make([][]time.Duration, len(names)), make([][]time.Duration, len(names)), make([][]time.Duration, len(names))
		for round := range 20 {
			for which := range names {
				for range 25 {
					body := `{"model":"m","max_tokens":10,"messages":"` + strings.Repeat("x", 1000) + `"}`
					req := servertest.Must(http.NewRequest(http.MethodPost, "http://"+addresses[which][1]+"/v1/chat/completions", strings.NewReader(body)))(t)
					req.Header.Set("x-user", "ann")
					req.Header.Set("x-stream", stream)
					began := time.Now()
					res := servertest.Must(http.DefaultClient.Do(req))(t)
					_, err := io.ReadFull(res.Body, make([]byte, 1))
					sent := <-arrived
					first := time.Since(sent)
					_, end := io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if err != nil || end != nil || res.StatusCode != http.StatusOK {
						t.Fatalf("%s: %d, %v, %v", names[which], res.StatusCode, err, end)
					}
					if round > 1 {
						decided[which] = append(decided[which], sent.Sub(began))
						firsts[which], totals[which] = append(firsts[which], first), append(totals[which], time.Since(began))
					}
				}
			}
		}
		for what, times := range map[string][][]time.Duration{"decision": decided, "first byte": firsts, "total": totals} {
			var median [3]float64
			for which := range names {
				slices.Sort(times[which])
				median[which] = times[which][len(times[which])/2].Seconds() * 1000
			}
			t.Logf("stream %q, %s: direct %.2f ms, limit %.2f, tokens %.2f, tokens / limit %.2f", stream, what, median[0], median[1], median[2], median[2]/median[1])
			if what == "decision" && median[2] > 2*median[1] {
				t.Error("a decision takes longer than two of the rate limit filter")
			}
		}
	}
}
