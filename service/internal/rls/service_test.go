package rls

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

const text = `
domain: d
descriptors:
- {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: ip, value: 192.0.2.66, rate_limit: {unit: second, requests_per_unit: 0}}
- {key: fixed, algorithm: fixed-window, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: both, limits: [2/10s, 5/1m]}
- {key: odd, limits: [2/90s]}
- {key: day, limits: [9/day@UTC]}
- {key: hour, limits: [9/hour@UTC]}
- {key: period, limits: [9/month@UTC]}
- {key: part, limits: [2/1500ms]}
- {key: huge, rate_limit: {unit: second, requests_per_unit: 4294967295}}
- {key: free, rate_limit: {unlimited: true}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: week, rate_limit: {unit: week, requests_per_unit: 10}, refund_within: 1m}
- {key: month, rate_limit: {unit: month, requests_per_unit: 10}}
- {key: year, rate_limit: {unit: year, requests_per_unit: 10, name: yearly}}
`

func TestStatusesAreInTheOrderOfTheRequest(t *testing.T) {
	w := begin(t, text, nil)
	w.says("all kinds", request("week", "free", "unknown", "ip=a", "odd", "both"),
		"OK: OK 10/WEEK 9 left 168h0m0s | OK | OK | OK 3/MINUTE 2 left 1m0s | OK 2/SECOND*90 1 left 1m30s | OK 2/SECOND*10 1 left 10s")
	w.says("one refuses, no other is charged", request("ip=a", "ip=192.0.2.66", "month"),
		"OVER_LIMIT: OK 3/MINUTE 2 left 1m0s | OVER_LIMIT 0/SECOND 0 left 0s | OK 10/MONTH 10 left 0s")
	w.says("calendars, and a window that is no whole number of seconds", request("day", "hour", "period", "part"),
		"OK: OK 9/DAY 8 left 16h0m0s | OK 9/HOUR 8 left 1h0m0s | OK 9/MONTH 8 left 400h0m0s | OK 2/UNKNOWN 1 left 2s")
	w.says("an unknown domain", &pb.RateLimitRequest{Domain: "other", Descriptors: request("ip=a").Descriptors}, "OK: OK")
	w.says("a large limit", request("huge"), "OK: OK 4294967295/SECOND 4294967294 left 1s")
	if res := w.ask(request("free")); res.Statuses[0].LimitRemaining != math.MaxUint32 {
		t.Errorf("unlimited: %d left", res.Statuses[0].LimitRemaining)
	}
	if res := w.ask(request("year")); res.Statuses[0].CurrentLimit.Name != "yearly" || res.Statuses[0].CurrentLimit.Unit != pb.RateLimitResponse_RateLimit_YEAR {
		t.Errorf("named: %v", res)
	}
}

func TestHits(t *testing.T) {
	w := begin(t, text, nil)
	hits := func(request, own *uint64, negative bool) *pb.RateLimitRequest {
		req := &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{descriptor("week")}}
		if request != nil {
			req.HitsAddend = uint32(*request)
		}
		if own != nil {
			req.Descriptors[0].HitsAddend = wrapperspb.UInt64(*own)
		}
		req.Descriptors[0].IsNegativeHits = negative
		return req
	}
	n := func(n uint64) *uint64 { return &n }
	w.says("nothing said is one", hits(nil, nil, false), "OK: OK 10/WEEK 9 left 168h0m0s")
	w.says("of the request", hits(n(3), nil, false), "OK: OK 10/WEEK 6 left 168h0m0s")
	w.says("of the descriptor", hits(n(3), n(1), false), "OK: OK 10/WEEK 5 left 168h0m0s")
	w.says("zero of the descriptor looks", hits(n(3), n(0), false), "OK: OK 10/WEEK 5 left 168h0m0s")
	w.says("refused, and free", hits(n(6), nil, false), "OVER_LIMIT: OVER_LIMIT 10/WEEK 5 left 168h0m0s")
	w.says("fewer have room", hits(nil, n(5), false), "OK: OK 10/WEEK 0 left 168h0m0s")
	w.says("given back", hits(nil, n(4), true), "OK: OK 10/WEEK 4 left 168h0m0s")
	w.says("given back, more than there is", hits(nil, n(math.MaxUint64), true), "OK: OK 10/WEEK 10 left 0s")
	w.says("refused, and charged", hits(nil, n(11), false), "OVER_LIMIT: OVER_LIMIT 10/WEEK 0 left 168h0m0s")
	w.says("a look finds it", hits(nil, n(0), false), "OVER_LIMIT: OVER_LIMIT 10/WEEK 0 left 168h0m0s")
	w.says("as many as there are", hits(n(math.MaxUint32), n(math.MaxUint64), false), "OVER_LIMIT: OVER_LIMIT 10/WEEK 0 left 168h0m0s")
}

func TestALimitInTheRequest(t *testing.T) {
	w := begin(t, text, nil)
	brings := func(units uint32, unit typev3.RateLimitUnit, times *wrapperspb.UInt32Value) *pb.RateLimitRequest {
		req := limited(units, unit, "ip=c")
		req.Descriptors[0].Limit.UnitMultiplier = times
		return req
	}
	w.says("first", brings(2, typev3.RateLimitUnit_HOUR, nil), "OK: OK 2/HOUR 1 left 1h0m0s")
	w.says("multiplied", brings(2, typev3.RateLimitUnit_HOUR, wrapperspb.UInt32(3)), "OK: OK 2/HOUR*3 0 left 3h0m0s")
	w.says("over", brings(2, typev3.RateLimitUnit_HOUR, nil), "OVER_LIMIT: OVER_LIMIT 2/HOUR 0 left 1h0m0s")
	w.says("month", brings(9, typev3.RateLimitUnit_MONTH, nil), "OK: OK 9/MONTH 6 left 720h0m0s")
	w.says("nothing", brings(0, typev3.RateLimitUnit_DAY, nil), "OVER_LIMIT: OVER_LIMIT 0/DAY 0 left 0s")
	for name, req := range map[string]*pb.RateLimitRequest{
		"unit unknown":       brings(2, typev3.RateLimitUnit_UNKNOWN, nil),
		"a unit of tomorrow": brings(2, 99, nil),
		"zero times":         brings(2, typev3.RateLimitUnit_DAY, wrapperspb.UInt32(0)),
		"too long":           brings(2, typev3.RateLimitUnit_YEAR, wrapperspb.UInt32(2)),
	} {
		if _, err := w.client.ShouldRateLimit(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.says("it still answers", request("ip=z"), "OK: OK 3/MINUTE 2 left 1m0s")
}

func TestShadow(t *testing.T) {
	counted := stats.New(nil)
	w := begin(t, text, &Options{Stats: counted})
	w.says("first", request("shadow"), "OK: OK 1/HOUR 0 left 1h0m0s")
	w.says("over", request("ip=a", "shadow"), "OK: OK 3/MINUTE 2 left 1m0s | OK 1/HOUR 0 left 1h0m0s")
	if rule := counted.Rule("d.shadow"); rule[stats.Shadow].Load() != 1 || rule[stats.Over].Load() != 1 || rule[stats.Total].Load() != 2 {
		t.Errorf("shadow %d, over %d, total %d", rule[stats.Shadow].Load(), rule[stats.Over].Load(), rule[stats.Total].Load())
	}

	global := begin(t, text, &Options{Shadow: true, Stats: counted})
	global.says("never over", request("ip=192.0.2.66"), "OK: OVER_LIMIT 0/SECOND 0 left 0s")
	if counted.Service.GlobalShadow.Load() != 1 {
		t.Error("it is not counted")
	}
	if rule := counted.Rule("d.ip_192.0.2.66"); rule[stats.Shadow].Load() != 1 || rule[stats.Over].Load() != 1 {
		t.Errorf("shadow %d, over %d", rule[stats.Shadow].Load(), rule[stats.Over].Load())
	}
}

func TestHeaders(t *testing.T) {
	w := begin(t, text, &Options{Headers: &Headers{"RateLimit-Limit", "RateLimit-Remaining", "X-Reset"}})
	header := func(req *pb.RateLimitRequest) string {
		var all []string
		for _, h := range w.ask(req).ResponseHeadersToAdd {
			all = append(all, h.Key+"="+h.Value)
		}
		return strings.Join(all, " ")
	}
	for _, tt := range []struct{ what, request, want string }{
		{"nothing limits", "free", ""},
		{"the closest", "week,ip=a,year", "RateLimit-Limit=3 RateLimit-Remaining=2 X-Reset=60"},
		{"the one that refuses", "ip=a,both,ip=192.0.2.66", "RateLimit-Limit=0 RateLimit-Remaining=0 X-Reset=0"},
		{"the quota is used up", "quota", "RateLimit-Limit=1 RateLimit-Remaining=0 X-Reset=3600"},
		{"the last that is over", "ip=192.0.2.66,quota", "RateLimit-Limit=1 RateLimit-Remaining=0 X-Reset=3600"},
	} {
		if got := header(request(strings.Split(tt.request, ",")...)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
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
		got := servertest.Must(protojson.Marshal(w.ask(request("a", "b")).DynamicMetadata.GetFields()["metadata"]))(t)
		if got := strings.NewReplacer(", ", ",", ": ", ":").Replace(string(got)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func limited(units uint32, unit typev3.RateLimitUnit, of string) *pb.RateLimitRequest {
	req := request(of)
	req.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: units, Unit: unit}
	return req
}

// The statuses and counters are those of Envoy's service of 22 January 2026 (3fb702589d36), run with the same requests.
func TestCompatibleAnswersAreEnvoys(t *testing.T) {
	counted := stats.New(nil)
	w := &world{t: t, now: time.Unix(1_800_000_000, 0).Truncate(time.Hour).Add(20 * time.Second)}
	w.defaults = config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true}
	w.serve(text, memstore.New(&memstore.Options{Now: w.clock}), &Options{Stats: counted, Counting: &decide.Counting{}})
	hits := func(n uint32, req *pb.RateLimitRequest) *pb.RateLimitRequest { req.HitsAddend = n; return req }
	w.says("the window is the clock's", request("ip=a"), "OK: OK 3/MINUTE 2 left 40s")
	w.says("more than fits", hits(5, request("ip=a")), "OVER_LIMIT: OVER_LIMIT 3/MINUTE 0 left 40s")
	w.says("it was charged", request("ip=a"), "OVER_LIMIT: OVER_LIMIT 3/MINUTE 0 left 40s")
	w.says("each is charged", request("ip=b", "ip=a"), "OVER_LIMIT: OK 3/MINUTE 2 left 40s | OVER_LIMIT 3/MINUTE 0 left 40s")
	w.says("again", request("ip=b"), "OK: OK 3/MINUTE 1 left 40s")
	w.says("a limit in the request", limited(2, typev3.RateLimitUnit_MINUTE, "none=x"), "OK: OK 2/MINUTE 1 left 40s")
	w.says("of another unit", limited(2, typev3.RateLimitUnit_HOUR, "none=x"), "OK: OK 2/HOUR 1 left 59m40s")
	w.says("of the first unit", limited(2, typev3.RateLimitUnit_MINUTE, "none=x"), "OK: OK 2/MINUTE 0 left 40s")
	w.says("over the rule's limit", limited(100, typev3.RateLimitUnit_MINUTE, "ip=b"), "OK: OK 100/MINUTE 97 left 40s")
	w.move(40 * time.Second)
	w.says("the next window", hits(3, request("ip=a")), "OK: OK 3/MINUTE 0 left 1m0s")

	for name, want := range map[string][6]uint64{ // total, within, over, with the local cache, near, shadow
		"d.ip":     {13, 6, 5, 0, 2, 0},
		"d.none_x": {3, 3, 0, 0, 1, 0},
	} {
		r := counted.Rule(name)
		var got [6]uint64
		for i, counter := range []int{stats.Total, stats.Within, stats.Over, stats.Cached, stats.Near, stats.Shadow} {
			got[i] = r[counter].Load()
		}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Envoy's service answers each error at /json with 400, and says no more. The log does.
func TestCompatibleJSONErrorsAreEnvoys(t *testing.T) {
	down := storeFunc(func(context.Context, *driver.Op) error { return errors.New("down") })
	d := servertest.Decider(t, down, text)
	for name, body := range map[string]string{
		"no JSON":              `{`,
		"not UTF-8":            "{\"domain\":\"\xff\"}",
		"no domain":            `{"descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}`,
		"no descriptors":       `{"domain":"d"}`,
		"a store that is down": `{"domain":"d","descriptors":[{"entries":[{"key":"ip","value":"a"}]}]}`,
		"a large body":         `{"domain":"` + strings.Repeat("d", maxMessage) + `"}`,
	} {
		for compatible, opts := range map[bool]*Options{true: {Counting: &decide.Counting{}}, false: {}} {
			var logs bytes.Buffer
			opts.Log = slog.New(slog.NewTextHandler(&logs, nil))
			w := post(New(d, opts), body)
			if asThere := w.Code == http.StatusBadRequest && w.Body.String() == "Bad Request\n"; asThere != compatible {
				t.Errorf("%s, compatible %v: %d %q", name, compatible, w.Code, w.Body)
			}
			if logs.Len() == 0 {
				t.Errorf("%s: the log does not say what is wrong: %s", name, &logs)
			}
		}
	}
}
