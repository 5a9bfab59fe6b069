//go:build prometheus

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

var alertRules = filepath.Join("..", "..", "..", "examples", "prometheus")

// The alerts are valid, and fire and do not fire in the cases beside them.
func TestRealPrometheusChecksTheAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = alertRules
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// seenRules have a rule of each kind that the dashboard shows.
const seenRules = `
domain: d
descriptors:
- {key: user, limits: [20/1s]}
- {key: tried, limits: [1/1h], shadow_mode: true}
- {key: open, limits: [1000/1h], on_unavailable: open}
- {key: local, limits: [1000/1h], on_unavailable: local}
- {key: closed, limits: [1000/1h]}
- {key: leased, limits: [2000/1h], scope: global, lease: 2s}
`

// A real Prometheus scrapes a service with traffic of each kind, and has data for every panel of the dashboard. Alerts on
// a store that fails are about to fire.
func TestRealPrometheusAnswersEveryPanel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, seenRules)
	region, home := redistest.Start(t), redistest.Start(t)
	p := serveIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=20"},
		append(freePorts, "--config", file, "--redis", region.Addr(), "--home", "redis://"+home.Addr(), "--instances", "2", "--budget", "100ms")...)
	prometheus := startPrometheus(t, strings.TrimPrefix(p.admin, "http://"))

	// Prometheus sees a counter grow only if it was scraped before: so traffic goes on.
	envoy := p.dial(t)
	traffic := func() {
		for _, key := range []string{"user", "tried", "open", "local", "closed"} {
			p.decide(t, key, 1)
		}
		for range 20 {
			p.decide(t, "leased", 1)
		}
		entry := &common.RateLimitDescriptor_Entry{Key: "user", Value: "a"}
		descriptors := []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}}
		_, _ = envoy.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: descriptors})
		_, _ = envoy.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{})
	}
	until := func(what string, query string) {
		t.Helper()
		servertest.Wait(t, what, func() bool {
			traffic()
			return len(prometheus.query(t, query)) > 0
		})
	}
	until("no refusals in Prometheus", `rate(sash_decisions_total{rule="user",outcome="refused"}[1m]) > 0`)
	until("no shadow refusals in Prometheus", `rate(sash_decisions_total{outcome="shadow"}[1m]) > 0`)
	until("no units near a limit in Prometheus", `rate(ratelimit_service_rate_limit_near_limit{key1="user"}[1m]) > 0`)
	until("no leases in Prometheus", `rate(sash_lease_spent_units_total[1m]) > 0`)
	region.Pause()
	for _, mode := range []string{`outcome="uncounted",source="policy"`, `outcome="error",source="policy"`, `source="local"`} {
		until("no decisions by "+mode, "rate(sash_decisions_total{"+mode+"}[1m]) > 0")
	}
	until("the instance is not degraded", "sash_degraded == 1")
	until("no failed exports", `rate(sash_export_failures_total{to="otlp"}[1m]) > 0`)
	for _, alert := range []string{"SashDegraded", "SashOpen", "SashClosed", "SashLocal", "SashExportsFail"} {
		until(alert+" is not pending", fmt.Sprintf("ALERTS{alertname=%q}", alert))
	}
	region.Resume()

	for where, query := range readDashboard(t).expressions(t) {
		finite := 0
		for _, value := range prometheus.query(t, query) {
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				finite++
			}
		}
		if finite == 0 {
			t.Errorf("%s has no data: %s", where, query)
		}
	}
	// What has grown is seen to have grown.
	for _, query := range []string{
		`sum(rate(sash_requests_total{outcome="refused"}[5m]))`, `sum(rate(sash_leased_units_total[5m]))`,
		`sum(rate(ratelimit_service_rate_limit_near_limit[5m]))`, `sum(rate(ratelimit_service_should_rate_limit_error{err_type="service_error"}[5m]))`,
		`sum(rate(sash_store_failures_total[5m]))`,
	} {
		if values := prometheus.query(t, query); len(values) != 1 || !(values[0] > 0) {
			t.Errorf("%s is %v", query, values)
		}
	}
}

// A prometheus is the URL of a real one.
type prometheus string

// startPrometheus runs Debian's Prometheus with the alerts until the test ends. It scrapes a target each half second.
func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(filepath.Join(alertRules, "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	put(t, config, fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
- {job_name: sash, static_configs: [{targets: [%q]}]}
`, rules, target))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	_ = free.Close()
	log := new(bytes.Buffer)
	cmd := exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", listen)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", log)
		}
	})
	p := prometheus("http://" + listen)
	servertest.Wait(t, "Prometheus does not scrape the service", func() bool {
		res, err := http.Get(string(p) + "/-/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK && len(p.query(t, `up{job="sash"} == 1`)) == 1
	})
	return p
}

// query returns the values of an expression now.
func (p prometheus) query(t *testing.T, expr string) (values []float64) {
	t.Helper()
	res, err := http.Get(string(p) + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %s %v", expr, answer.Error, err)
	}
	for _, series := range answer.Data.Result {
		text, _ := series.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}
