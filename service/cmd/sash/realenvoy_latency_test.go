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

// A decision about tokens takes Envoy two messages, the headers and the body of a request, and one of the rate limit filter takes one. One
// Envoy has a listener without a decision and one with either filter. Requests go to each in turn, and medians are compared: of the time
// until the vendor has the request, from then until the client has the first byte, and of all.
func TestRealEnvoyTokenLatency(t *testing.T) {
	arrived := make(chan time.Time, 1)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- time.Now()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\n")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(vendor.Close)
	rules := edited(t, tokenDocs(t)[0], "100000/1m", "1000000000/1m", "500/1m", "1000000000/1m")
	p := serveInline(t, rules)
	var root, limit, tokens map[string]any
	servertest.Check(t, yaml.Unmarshal([]byte(withFilter(t, envoyConfig(t, &upstream{port: portOf(vendor.Listener.Addr().String())}, p), denying+`domain: ai
rate_limits:
- actions: [{request_headers: {header_name: x-user, descriptor_key: x-user}}]
- actions: [{generic_key: {descriptor_key: account, descriptor_value: all}}]
`)), &root))
	servertest.Check(t, yaml.Unmarshal([]byte(strings.Replace(tokenDocs(t)[1], "message_timeout: 1s", "message_timeout: 20s", 1)), &tokens))
	filters := list(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config", "http_filters")
	limit, router := filters[len(filters)-2].(map[string]any), filters[len(filters)-1]
	var listeners []any
	for name, chain := range map[string][]any{"web": {router}, "web-limit": {limit, router}, "web-tokens": {tokens, router}} {
		at(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)["http_filters"] = chain
		var listener map[string]any // a copy
		servertest.Check(t, yaml.Unmarshal(servertest.Must(yaml.Marshal(at(root, "static_resources", "listeners", 0)))(t), &listener))
		listener["name"] = name
		listeners = append(listeners, listener)
	}
	at(root, "static_resources").(map[string]any)["listeners"] = listeners
	e := startEnvoy(t, string(servertest.Must(yaml.Marshal(root))(t)))
	_, text := get(t, e.admin+"/listeners")

	times := map[string]*[3][]time.Duration{} // by listener: decision, first byte, all
	for range 1000 {
		for _, listener := range regexp.MustCompile(`(web[a-z-]*)::(\S+)`).FindAllStringSubmatch(text, -1) {
			body := `{"model":"m","max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"messages":"` + strings.Repeat("x", 1000) + `"}`
			req := servertest.Must(http.NewRequest(http.MethodPost, "http://"+listener[2]+"/v1/chat/completions", strings.NewReader(body)))(t)
			req.Header.Set("x-user", "ann")
			began := time.Now()
			res := servertest.Must(http.DefaultClient.Do(req))(t)
			_, _ = io.ReadFull(res.Body, make([]byte, 1))
			sent := <-arrived
			first := time.Since(sent)
			if rest, err := finish(res); err != nil || res.StatusCode != http.StatusOK {
				t.Fatal(listener[1], res.StatusCode, rest, err)
			}
			all := times[listener[1]]
			if all == nil {
				all = &[3][]time.Duration{}
				times[listener[1]] = all
			}
			for i, d := range []time.Duration{sent.Sub(began), first, time.Since(began)} {
				all[i] = append(all[i], d)
			}
		}
	}
	for i, what := range []string{"decision", "first byte", "all"} {
		median := map[string]float64{}
		for listener, all := range times {
			slices.Sort(all[i])
			median[listener] = all[i][len(all[i])/2].Seconds() * 1000
		}
		ratio := median["web-tokens"] / median["web-limit"]
		t.Logf("%s in ms: %.3v, tokens / limit: %.2f", what, median, ratio)
		if what == "decision" && ratio > 2 {
			t.Error("a decision takes longer than two of the rate limit filter")
		}
	}
}
