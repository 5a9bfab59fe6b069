package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// scrape returns the metrics of a service, by name.
func scrape(t *testing.T, p *service) map[string]*dto.MetricFamily {
	t.Helper()
	_, text := get(t, p.admin+"/metrics")
	read := expfmt.NewTextParser(model.UTF8Validation)
	return servertest.Must(read.TextToMetricFamilies(strings.NewReader(text)))(t)
}

// labelValues is Grafana's query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// dashboardQueries returns all queries of Grafana's dashboard by the panel's title, with its variables filled in.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	servertest.Check(t, json.Unmarshal(readFile(t, examples+"/grafana/sash.json"), &dashboard))
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$domain", ".*")
	all := make(map[string]string)
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = fill.Replace(target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			query := labelValues.FindStringSubmatch(v.Definition)
			if query == nil {
				t.Fatalf("variable %s has the query %q", v.Name, v.Definition)
			}
			all["variable "+v.Name] = "sum by (" + query[2] + ") (" + fill.Replace(query[1]) + ")"
		}
	}
	return all
}

// metricName is the name of a metric or of a recorded series in an expression.
var metricName = regexp.MustCompile(`[\w:]*\b(?:sash|ratelimit)[_:][\w:]+`)

// rowOfAMetric is a line of the table in docs/metrics.md.
var rowOfAMetric = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_]+)` \\| (counter|histogram) \\|([^|]*)\\|")

// A service with a home has the metrics of docs/metrics.md, and those that the dashboard and the alerts query, after calls of
// each kind and with more names than it keeps. make test-prometheus shows that each query has data.
func TestDashboardAlertsAndDocumentationFitTheMetrics(t *testing.T) {
	redis := "redis://" + redistest.Start(t).Addr()
	p := serve(t, "--config", tempFile(t, "limits.yaml", "domain: d\ndescriptors:\n- {key: user, limits: [2/1h]}\n- {key: named, limits: [1/1h], detailed_metric: true}\n"),
		"--redis", redis, "--home", redis, "--budget", "10s")
	p.decide(t, "user", 2)
	post(t, p.url+"/json", `{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)
	ask := p.asks(t, "d")
	if _, err := ask(); err == nil {
		t.Error("a wrong request is answered")
	}
	var names []string
	for i := range 1001 {
		names = append(names, fmt.Sprint("named=", i))
	}
	for some := range slices.Chunk(names, 91) {
		_ = servertest.Must(ask(some...))(t)
	}
	families := scrape(t, p)

	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	servertest.Check(t, yaml.Unmarshal(readFile(t, examples+"/prometheus/rules.yml"), &rules))
	queries, recorded := dashboardQueries(t), map[string]bool{}
	panels := len(queries)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			queries[rule.Record+rule.Alert] = rule.Expr
			recorded[rule.Record] = true
		}
	}
	if alerts := len(queries) - panels; panels < 10 || alerts < 5 {
		t.Fatalf("%d panels and %d rules were read", panels, alerts)
	}
	for where, text := range queries {
		for _, name := range metricName.FindAllString(text, -1) {
			if !recorded[name] && families[strings.TrimSuffix(name, "_bucket")] == nil {
				t.Errorf("%s: no metric %s: %s", where, name, text)
			}
		}
	}

	page := string(readFile(t, repository+"/docs/metrics.md"))
	rows := rowOfAMetric.FindAllStringSubmatch(page, -1)
	if len(rows) < 15 {
		t.Fatalf("%d rows were read", len(rows))
	}
	for _, row := range rows {
		family := families[row[1]]
		if family == nil || strings.ToLower(family.GetType().String()) != row[2] {
			t.Errorf("%s is no %s: %v", row[1], row[2], family)
			continue
		}
		for _, label := range family.Metric[0].Label {
			if !strings.Contains(row[3], "`"+label.GetName()+"`") && strings.TrimSpace(row[3]) != "the same" {
				t.Errorf("%s has a label %s that is not documented", row[1], label.GetName())
			}
		}
	}
	for name := range families {
		name = strings.Replace(name, "_rate_limit_other_", "_rate_limit_", 1) // of the names that are not kept
		if !strings.Contains(page, "`"+name+"`") && (strings.HasPrefix(name, "sash_") || strings.HasPrefix(name, "ratelimit_")) {
			t.Errorf("%s is not documented", name)
		}
	}
}
