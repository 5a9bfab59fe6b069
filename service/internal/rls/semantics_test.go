package rls

import (
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"example.com/sash/service/internal/stats"
)

// Counters have the names and the units of Envoy's service: values only where the configuration asks for them.
func TestNamesOfMetrics(t *testing.T) {
	counted := stats.New(nil)
	w := begin(t, `
domain: d
descriptors:
  - {key: path, value: /api/*, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, value: /api/health, rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - key: route
    value_to_metric: true
    descriptors: [{key: method, rate_limit: {unit: minute, requests_per_unit: 10}}]
`, &Options{Stats: counted})
	req := request("plain=secret", "detailed=shown", "route=users method=GET", "path=/api/health", "path=/api/users")
	req.HitsAddend = 5
	w.ask(req)
	w.says("over", &pb.RateLimitRequest{Domain: "d", HitsAddend: 7, Descriptors: request("plain=secret").Descriptors}, "OVER_LIMIT: OVER_LIMIT 10/MINUTE 5 left 1m0s")
	var text strings.Builder
	if err := counted.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const at = "ratelimit.service.rate_limit.d."
	for _, want := range []string{
		at + "plain.total_hits: 12\n", at + "plain.within_limit: 5\n", at + "plain.over_limit: 7\n", at + "plain.near_limit: 0\n",
		at + "detailed_shown.total_hits: 5\n", at + "route_users.method.total_hits: 5\n",
		at + "path_/api/health.near_limit: 0\n", // 80 % of 7 is 5
		at + "path_/api/*.near_limit: 1\n",      // 80 % of 5 is 4: the fifth unit is near
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "secret") {
		t.Errorf("a value is shown that was not requested:\n%s", &text)
	}
}

// The data of rules with room, the first of each key: Envoy routes by it, since April 2026.
func TestMetadataOfRules(t *testing.T) {
	const text = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: hour, requests_per_unit: 1}, metadata: {service: one, deep: {n: [1, 2.5, true, ~]}}}
- {key: b, rate_limit: {unit: hour, requests_per_unit: 9}, metadata: {service: two, deep: {m: x}}}
`
	w := begin(t, text, &Options{Metadata: true, Quota: true})
	for _, want := range []string{`{"deep":{"m":"x","n":[1,2.5,true,null]},"service":"one"}`, `{"deep":{"m":"x"},"service":"two"}`} {
		got, err := protojson.Marshal(w.ask(request("a", "b")).DynamicMetadata.GetFields()["metadata"])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.NewReplacer(", ", ",", ": ", ":").Replace(string(got)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
