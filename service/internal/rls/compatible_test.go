package rls

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// limited is a request with a limit of its own.
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
		got := [6]uint64{r.Total.Load(), r.Within.Load(), r.Over.Load(), r.Cached.Load(), r.Near.Load(), r.Shadow.Load()}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Envoy's service counts in shadow_mode what rules with shadow_mode let through, and not what SHADOW_MODE does.
func TestCompatibleShadowCountsAsEnvoys(t *testing.T) {
	counted := stats.New(nil)
	w := &world{t: t, now: time.Unix(1_800_000_000, 0).Truncate(time.Hour)}
	w.defaults = config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true}
	w.serve(text, memstore.New(&memstore.Options{Now: w.clock}), &Options{Shadow: true, Stats: counted, Counting: &decide.Counting{}})
	w.says("never over", request("ip=192.0.2.66"), "OK: OVER_LIMIT 0/SECOND 0 left 1s")
	if rule := counted.Rule("d.ip_192.0.2.66"); rule.Shadow.Load() != 0 || rule.Over.Load() != 1 || counted.Service.GlobalShadow.Load() != 1 {
		t.Errorf("shadow %d, over %d, global %d", rule.Shadow.Load(), rule.Over.Load(), counted.Service.GlobalShadow.Load())
	}
}

// Envoy's service answers each error at /json with 400, and says no more. The log does.
func TestCompatibleJSONErrorsAreEnvoys(t *testing.T) {
	down := storeFunc(func(context.Context, driver.Request) (driver.Answer, error) {
		return driver.Answer{}, errors.New("down")
	})
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
			w := httptest.NewRecorder()
			New(d, opts).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", strings.NewReader(body)))
			if asThere := w.Code == http.StatusBadRequest && w.Body.String() == "Bad Request\n"; asThere != compatible {
				t.Errorf("%s, compatible %v: %d %q", name, compatible, w.Code, w.Body)
			}
			if logs.Len() == 0 {
				t.Errorf("%s: the log does not say what is wrong: %s", name, &logs)
			}
		}
	}
}
