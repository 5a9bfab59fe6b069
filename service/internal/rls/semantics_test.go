package rls

import (
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"example.com/sash/service/internal/stats"
)

// What the documentation of Envoy's rate limit service says of its configuration, asked over gRPC.
const documented = `
domain: d
descriptors:
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: path
    value: /api/*
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: path
    value: /api/health
    rate_limit: {unit: minute, requests_per_unit: 7}
  - key: marketing
    value: sms
    descriptors:
      - {key: to, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: to, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: ldap, rate_limit: {unlimited: true}}
  - key: listed
  - key: shared
    value: files/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: own
    value: files/*
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: route
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: {unit: minute, requests_per_unit: 10}}
`

// A step asks with descriptors, separated by commas, and expects an answer as in says.
type step struct{ what, descriptors, want string }

func (w *world) walk(steps []step) {
	w.t.Helper()
	for _, s := range steps {
		w.says(s.what, request(strings.Split(s.descriptors, ",")...), s.want)
	}
}

func TestWhichRuleIsMeant(t *testing.T) {
	begin(t, documented, nil).walk([]step{
		{"the exact value comes first", "path=/api/health", "OK: OK 7/MINUTE 6 left 1m0s"},
		{"then the wildcard", "path=/api/users", "OK: OK 5/MINUTE 4 left 1m0s"},
		{"then the bare key", "path=/home", "OK: OK 9/MINUTE 8 left 1m0s"},
		{"keys have a case", "Path=/home", "OK: OK"},
		{"values have a case", "marketing=SMS to=1", "OK: OK"},
		{"a rule of two entries", "marketing=sms to=1", "OK: OK 2/DAY 1 left 24h0m0s"},
		{"less deep than the rule", "marketing=sms", "OK: OK"},
		{"deeper than the rule", "to=1 path=/home", "OK: OK"},
		{"deeper than the rule of two entries", "marketing=sms to=1 more=x", "OK: OK"},
		{"in another order", "to=1 marketing=sms", "OK: OK"},
		{"a key without a limit lets all pass", "listed=x", "OK: OK"},
		{"no limit at all", "ldap=x", "OK: OK"},
		{"each value of a bare key has its own units", "to=2", "OK: OK 3/DAY 2 left 24h0m0s"},
		{"the protocol allows empty values", "to=", "OK: OK 3/DAY 2 left 24h0m0s"},
		{"and all count together", "to", "OK: OK 3/DAY 1 left 24h0m0s"},
	})
}

func TestSharedThresholds(t *testing.T) {
	begin(t, documented, nil).walk([]step{
		{"one value", "shared=files/a", "OK: OK 2/HOUR 1 left 1h0m0s"},
		{"another value", "shared=files/b", "OK: OK 2/HOUR 0 left 1h0m0s"},
		{"all together", "shared=files/c", "OVER_LIMIT: OVER_LIMIT 2/HOUR 0 left 1h0m0s"},
		{"not shared", "own=files/a", "OK: OK 2/HOUR 1 left 1h0m0s"},
		{"each value by itself", "own=files/b", "OK: OK 2/HOUR 1 left 1h0m0s"},
	})
}

func TestNamesOfMetrics(t *testing.T) {
	counted := stats.New(nil)
	w := begin(t, documented, &Options{Stats: counted})
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

// A window of a configured limit that is no unit of the protocol is returned as a multiple of one, and its units
// leave when it has passed.
func TestAMultipleOfAUnit(t *testing.T) {
	w := begin(t, "domain: d\ndescriptors:\n- {key: a, limits: [2/90s]}\n", nil)
	w.says("first", request("a"), "OK: OK 2/SECOND*90 1 left 1m30s")
	w.move(89 * time.Second)
	w.says("second", request("a"), "OK: OK 2/SECOND*90 0 left 1s")
	w.says("full", request("a"), "OVER_LIMIT: OVER_LIMIT 2/SECOND*90 0 left 1s")
	w.move(time.Second)
	w.says("the first has left", request("a"), "OK: OK 2/SECOND*90 0 left 1m29s")
}
