//go:build envoy

package main

import (
	"cmp"
	"io"
	"math/rand/v2"
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

// One Envoy has a listener without a decision, one with the rate limit filter and one with those of token budgets. Requests go to each in
// turn, in rounds, and medians are compared: of the time until the vendor has the request, and from then until the client has the first byte.
// The turns are in random order, because the service settles a response while the next request is decided.
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
	rules := tokenDocs(t, "100000/1m", "1000000000/1m", "500/1m", "1000000000/1m")
	p := spawn(t, nil, "--config", tempFile(t, "policy.yaml", rules), "--budget", patience) // apart from the client and the vendor
	var root map[string]any
	servertest.Check(t, yaml.Unmarshal([]byte(withFilter(t, envoyConfig(t, &upstream{port: portOf(vendor.Listener.Addr().String())}, p), denying+`domain: ai
rate_limits:
- actions: [{request_headers: {header_name: x-user, descriptor_key: x-user}}]
- actions: [{generic_key: {descriptor_key: account, descriptor_value: all}}]
`)), &root))
	filters := list(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config", "http_filters")
	limit, router := filters[len(filters)-2], filters[len(filters)-1]
	tokens := append(tokenFilters(t), router)
	var listeners []any
	for name, chain := range map[string][]any{"web": {router}, "web-limit": {limit, router}, "web-tokens": tokens} {
		at(root, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)["http_filters"] = chain
		var listener map[string]any // a copy
		servertest.Check(t, yaml.Unmarshal(servertest.Must(yaml.Marshal(at(root, "static_resources", "listeners", 0)))(t), &listener))
		listener["name"] = name
		listeners = append(listeners, listener)
	}
	at(root, "static_resources").(map[string]any)["listeners"] = listeners
	e := startEnvoy(t, string(servertest.Must(yaml.Marshal(root))(t)))
	_, text := get(t, e.admin+"/listeners")

	addresses := regexp.MustCompile(`(web[a-z-]*)::(\S+)`).FindAllStringSubmatch(text, -1)
	medians := map[string]*[2][]float64{} // in ms, of each round: of the decision and the first byte
	for range 10 {
		times := map[string]*[2][]float64{}
		for range 100 {
			rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
			for _, listener := range addresses {
				name := listener[1]
				if times[name] == nil {
					times[name], medians[name] = new([2][]float64), cmp.Or(medians[name], new([2][]float64))
				}
				sent, first := streamed(t, listener[2], arrived)
				times[name][0], times[name][1] = append(times[name][0], sent), append(times[name][1], first)
			}
		}
		for name, all := range times {
			for i := range all {
				medians[name][i] = append(medians[name][i], median(all[i]))
			}
		}
	}
	for i, what := range []string{"decision", "first byte"} {
		var ratios []float64
		limit, tokens := medians["web-limit"][i], medians["web-tokens"][i]
		for j := range limit {
			ratios = append(ratios, tokens[j]/limit[j])
		}
		ratio := median(ratios)
		t.Logf("%s: %.2f ms, limit %.2f, tokens %.2f; tokens / limit %.2f (%.2f to %.2f)",
			what, median(medians["web"][i]), median(limit), median(tokens), ratio, ratios[0], ratios[len(ratios)-1])
		if what == "decision" && ratio > 2 {
			t.Error("a decision takes longer than two of the rate limit filter")
		}
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// streamed sends a request, and returns the ms until the vendor has it, and from then until the first byte.
func streamed(t *testing.T, address string, arrived <-chan time.Time) (sent, first float64) {
	t.Helper()
	body := `{"model":"m","max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"messages":"` + strings.Repeat("x", 1000) + `"}`
	req := servertest.Must(http.NewRequest(http.MethodPost, "http://"+address+"/v1/chat/completions", strings.NewReader(body)))(t)
	req.Header.Set("x-user", "ann")
	began := time.Now()
	res := servertest.Must(http.DefaultClient.Do(req))(t)
	_, _ = io.ReadFull(res.Body, make([]byte, 1))
	read := time.Now()
	if rest, err := finish(res); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(address, res.StatusCode, rest, err)
	}
	at := <-arrived
	return at.Sub(began).Seconds() * 1000, read.Sub(at).Seconds() * 1000
}
