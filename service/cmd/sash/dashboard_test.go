package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"example.com/sash/internal/redistest"
)

// A dashboard is the part of Grafana's JSON with the places and queries of panels.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  struct{ Type, UID string }
		Targets     []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	text := readFile(t, filepath.Join("..", "..", "..", "examples", "grafana", "sash.json"))
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// scrape returns the metrics of a service, by name.
func scrape(t *testing.T, p *service) map[string]*dto.MetricFamily {
	t.Helper()
	status, text := get(t, p.admin+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d", status)
	}
	read := expfmt.NewTextParser(model.UTF8Validation)
	families, err := read.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// labelValues is Grafana's query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// expressions returns all queries of the dashboard by the panel's title, with Grafana's variables filled in.
func (d *dashboard) expressions(t *testing.T) map[string]string {
	t.Helper()
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$domain", ".*")
	all := make(map[string]string)
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = fill.Replace(target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		query := labelValues.FindStringSubmatch(v.Definition)
		if query == nil {
			t.Fatalf("variable %s has the query %q", v.Name, v.Definition)
		}
		all["variable "+v.Name] = "sum by (" + query[2] + ") (" + fill.Replace(query[1]) + ")"
	}
	return all
}

// added are the labels that Prometheus adds to what it scrapes.
var added = map[string]bool{model.MetricNameLabel: true, "job": true, "instance": true, "le": true}

// everyMetric returns the metrics of a service with a home, of each kind of call, and with more names than it keeps.
func everyMetric(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, userLimits+"- {key: named, limits: [1/1h], detailed_metric: true}\n")
	redis := "redis://" + redistest.Start(t).Addr()
	p := serve(t, "--config", file, "--redis", redis, "--home", redis)
	callInATrace(t, p, "")
	if _, err := p.dial(t).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{}); err == nil {
		t.Error("a wrong request is answered")
	}
	const names, atOnce = 1001, 91
	for i := 0; i < names; i += atOnce {
		req := &pb.RateLimitRequest{Domain: "d"}
		for n := range atOnce {
			entry := &common.RateLimitDescriptor_Entry{Key: "named", Value: strconv.Itoa(i + n)}
			req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}})
		}
		if _, err := p.dial(t).ShouldRateLimit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	return scrape(t, p)
}

// The dashboard and the alerts query metrics and labels that a service has.
func TestTheDashboardAndTheAlertsFitTheMetrics(t *testing.T) {
	families := everyMetric(t)
	recorded, alerts := readRules(t)
	for where, text := range readDashboard(t).expressions(t) {
		queries(t, families, recorded, where, text)
	}
	for where, text := range alerts {
		queries(t, families, recorded, where, text)
	}
}

// readRules returns the expressions of the alert rules by the name of the rule, and the names of those that record a series.
func readRules(t *testing.T) (recorded map[string]bool, expressions map[string]string) {
	t.Helper()
	text := readFile(t, filepath.Join("..", "..", "..", "examples", "prometheus", "rules.yml"))
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	recorded, expressions = map[string]bool{}, map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			expressions[rule.Record+rule.Alert] = rule.Expr
			recorded[rule.Record] = true
		}
	}
	if len(expressions) < 5 {
		t.Fatalf("%d rules were read", len(expressions))
	}
	return recorded, expressions
}

// queries checks that an expression queries metrics and labels that there are.
func queries(t *testing.T, families map[string]*dto.MetricFamily, recorded map[string]bool, where, text string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v: %s", where, err, text)
		return
	}
	grouping := map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if by, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range by.Grouping {
				grouping[label] = true
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok || recorded[selector.Name] {
			return nil
		}
		family := families[strings.TrimSuffix(selector.Name, "_bucket")]
		if family == nil {
			t.Errorf("%s: no metric %s", where, selector.Name)
			return nil
		}
		has := map[string]bool{}
		for _, l := range family.Metric[0].Label {
			has[l.GetName()] = true
		}
		for _, m := range selector.LabelMatchers {
			if !added[m.Name] && !has[m.Name] {
				t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
			}
		}
		for label := range grouping {
			if !added[label] && !has[label] && label != "home" { // which a home without a name does not have
				t.Errorf("%s: %s has no label %s to group by", where, selector.Name, label)
			}
		}
		return nil
	})
}

// rowOfAMetric is a line of the table in docs/metrics.md.
var rowOfAMetric = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_]+)` \\| (counter|histogram) \\|([^|]*)\\|")

func TestTheDocumentedMetricsExist(t *testing.T) {
	text := readFile(t, filepath.Join("..", "..", "..", "docs", "metrics.md"))
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, userLimits)
	p := serve(t, "--config", file)
	callInATrace(t, p, "")
	families := scrape(t, p)
	redis := "redis://" + redistest.Start(t).Addr()
	for name, family := range scrape(t, serve(t, "--config", file, "--redis", redis, "--home", redis)) {
		if strings.HasPrefix(name, "sash_home_") {
			families[name] = family
		}
	}
	rows := rowOfAMetric.FindAllStringSubmatch(string(text), -1)
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
		delete(families, row[1])
	}
	for name := range families {
		if strings.HasPrefix(name, "sash_request") || strings.HasPrefix(name, "sash_decision") || strings.HasPrefix(name, "ratelimit_") {
			t.Errorf("%s is not documented", name)
		}
	}
}
