//go:build prometheus

package main

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const alertRules = examples + "/prometheus"

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
	region, home := redistest.Start(t), redistest.Start(t)
	p := serveIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=20"},
		append(freePorts, "--config", tempFile(t, "limits.yaml", seenRules), "--redis", region.Addr(), "--home", home.Addr(),
			"--instances", "2", "--budget", "100ms")...)
	prometheus := startPrometheus(t, strings.TrimPrefix(p.admin, "http://"))

	// Prometheus sees a counter grow only if it was scraped before: so traffic goes on.
	envoy := p.asks(t, "d")
	until := func(query string) {
		t.Helper()
		servertest.Wait(t, "Prometheus has no "+query, func() bool {
			for _, key := range []string{"user", "tried", "open", "local", "closed"} {
				p.decide(t, key, 1)
			}
			for range 20 {
				p.decide(t, "leased", 1)
			}
			_, _ = envoy("user=a")
			_, _ = envoy()
			return len(prometheus.query(t, query)) > 0
		})
	}
	until(`rate(sash_decisions_total{rule="user",outcome="refused"}[1m]) > 0`)
	until(`rate(sash_decisions_total{outcome="shadow"}[1m]) > 0`)
	until(`rate(ratelimit_service_rate_limit_near_limit{key1="user"}[1m]) > 0`)
	until(`rate(sash_lease_spent_units_total[1m]) > 0`)
	region.Pause()
	for _, mode := range []string{`outcome="uncounted",source="policy"`, `outcome="error",source="policy"`, `source="local"`} {
		until("rate(sash_decisions_total{" + mode + "}[1m]) > 0")
	}
	until("sash_degraded == 1")
	until(`rate(sash_export_failures_total{to="otlp"}[1m]) > 0`)
	for _, alert := range []string{"SashDegraded", "SashOpen", "SashClosed", "SashLocal", "SashExportsFail"} {
		until(fmt.Sprintf("ALERTS{alertname=%q}", alert))
	}
	region.Resume()

	for where, query := range dashboardQueries(t) {
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
}

type prometheus string

// startPrometheus runs Debian's Prometheus with the alerts until the test ends. It scrapes a target each half second.
func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	rules := servertest.Must(filepath.Abs(alertRules + "/rules.yml"))(t)
	config := tempFile(t, "prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
- {job_name: sash, static_configs: [{targets: [%q]}]}
`, rules, target))
	listen := freeAddress(t, 1)
	p := prometheus("http://" + listen)
	started := start(t, exec.Command("prometheus", "--config.file", config, "--storage.tsdb.path", t.TempDir(), "--web.listen-address", listen))
	started.ready("Prometheus", func() bool {
		res, err := http.Get(string(p) + "/-/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK && len(p.query(t, `up{job="sash"} == 1`)) == 1
	})
	return p
}

func (p prometheus) query(t *testing.T, expr string) (values []float64) {
	t.Helper()
	_, text := get(t, string(p)+"/api/v1/query?query="+url.QueryEscape(expr))
	answer := decode[struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}](t, text)
	if answer.Error != "" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	for _, series := range answer.Data.Result {
		value := servertest.Must(strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64))(t)
		values = append(values, value)
	}
	return values
}
