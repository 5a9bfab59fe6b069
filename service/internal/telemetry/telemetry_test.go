package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = `
domain: d
descriptors:
- {key: user, limits: [2/1h]}
- {key: soft, limits: [1/1h], shadow_mode: true}
- {key: detailed, limits: [1/1h], detailed_metric: true}
- {key: tried, limits: [50/1h], candidate: {limits: [2/1h]}}
- {key: held, limits: [50/1h], candidate: {limits: [2/1h], enforce_percent: 100}}
- {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
`

func decider(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), rules)
}

// ask requests one unit for one entry.
func ask(t *testing.T, d *decide.Decider, key, value string) {
	t.Helper()
	parts := []decide.Part{{Entries: []config.Entry{{Key: key, Value: value}}, Cost: 1}}
	_ = servertest.Must(d.Decide(t.Context(), decide.Request{Domain: "d", Parts: parts, Lenient: true}))(t)
}

// variables are an environment: name=value, separated by blanks.
func variables(all string) func(string) string {
	m := make(map[string]string)
	for field := range strings.FieldsSeq(all) {
		name, value, _ := strings.Cut(field, "=")
		m[name] = value
	}
	return func(name string) string { return m[name] }
}

func TestNothingIsExportedByDefault(t *testing.T) {
	for _, env := range []string{
		"",
		"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_SDK_DISABLED=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none",
	} {
		exports := servertest.Must(Start(t.Context(), decider(t), stats.New(nil), Options{Env: variables(env), Log: slog.New(slog.DiscardHandler)}))(t)
		if exports.tracing != nil {
			t.Errorf("%v: something is exported", env)
		}
		next := http.NewServeMux()
		if exports.Handler(next) != http.Handler(next) {
			t.Errorf("%v: the handler reads traces", env)
		}
		exports.Stop()
	}
}

func TestStartReturnsWrongSettings(t *testing.T) {
	const on = "OTEL_TRACES_EXPORTER=otlp "
	for vars, want := range map[string]string{
		on + "OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                                    "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\": use http/protobuf",
		on + "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=pigeon": "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		on + "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317":                                          "such as http://collector:4318",
		on + "OTEL_EXPORTER_OTLP_HEADERS=secret":                                                   "key=value",
		on + "OTEL_EXPORTER_OTLP_TIMEOUT=10s":                                                      "use milliseconds",
		on + "OTEL_BSP_SCHEDULE_DELAY=0":                                                           "use milliseconds",
		on + "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere":                                             "no such file",
		on + "OTEL_EXPORTER_OTLP_CERTIFICATE=telemetry.go":                                         "no certificate",
		on + "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nowhere":                                      "CLIENT_KEY",
		on + "OTEL_RESOURCE_ATTRIBUTES=a=%zz":                                                      "percent-encoded",
		on + "OTEL_TRACES_SAMPLER=sometimes":                                                       "use always_on",
		on + "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2":                          "a number from 0 to 1",
		"OTEL_TRACES_EXPORTER=pigeon":                                                              "use otlp or none",
		"OTEL_METRICS_EXPORTER=otlp":                                                               "prometheus receiver",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318":                                        "prometheus receiver",
	} {
		_, err := Start(t.Context(), decider(t), stats.New(nil), Options{Env: variables(vars), Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", vars, err, want)
		}
	}
	if _, err := Start(t.Context(), decider(t), stats.New(nil), Options{Exporters: Exporters{PrometheusAddr: "nowhere:x"}}); err == nil ||
		!strings.Contains(err.Error(), "PROMETHEUS_ADDR") {
		t.Errorf("%v", err)
	}
}

func TestPrometheusHasAnAddressOfItsOwn(t *testing.T) {
	var log bytes.Buffer
	registry := stats.New(nil)
	d := decider(t)
	d.Observe(registry.Observe)
	exports := servertest.Must(Start(t.Context(), d, registry, Options{
		Exporters: Exporters{PrometheusAddr: "127.0.0.1:0", PrometheusPath: "/m"}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}))(t)
	defer exports.Stop()
	ask(t, d, "user", "ann")
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(log.String())[1]
	req := servertest.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/m", nil))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	servertest.Check(t, err)
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	if want := `sash_decisions_total{domain="d",outcome="allowed",rule="user",source="store"} 1`; !strings.Contains(string(text), want) {
		t.Errorf("%s is not in %s", want, text)
	}
}

// logRefusals logs the refusals of a decider, at a time that the test moves.
func logRefusals(t *testing.T, keys bool) (*decide.Decider, *time.Time, func() []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	log := newRefusals(slog.New(slog.NewJSONHandler(&text, nil)), true, keys)
	d := decider(t)
	d.Observe(func(ctx context.Context, o *decide.Observation) {
		o.Began, o.Took = now, 0
		log.observe(ctx, o)
	})
	return d, &now, func() []map[string]any {
		var lines []map[string]any
		for line := range strings.Lines(text.String()) {
			var m map[string]any
			servertest.Check(t, json.Unmarshal([]byte(line), &m))
			lines = append(lines, m)
		}
		text.Reset()
		return lines
	}
}

// What does not bind is logged as such, and so is what only a candidate would have refused. An enforced candidate's refusals
// are refusals.
func TestWhatDoesNotBindIsLogged(t *testing.T) {
	d, now, lines := logRefusals(t, false)
	for key, want := range map[string]string{"soft": "shadow", "never": "limit", "tried": "limit", "held": "limit"} {
		for range 6 {
			ask(t, d, key, "ann")
		}
		got := lines()
		if text := map[string]string{"tried": "a candidate would have refused what was allowed"}[key]; len(got) != 1 ||
			got[0]["msg"] != cmp.Or(text, "refused") || got[0][want] == nil || got[0][want] == "" || got[0]["key"] != nil {
			t.Errorf("%s: %v", key, got)
		}
	}
	*now = now.Add(time.Second)
	ask(t, d, "tried", "ann")
	if got := lines(); len(got) != 1 || got[0]["not_logged_before"] != 3.0 || got[0]["limit"] != "2/1h" {
		t.Errorf("the next line is %v", got)
	}
}

// A refusal is logged with its limit, and with its key on request.
func TestRefusalsAreLogged(t *testing.T) {
	for _, tt := range []struct {
		key, limit string
		keys, want bool
	}{{"user", "2/1h", false, false}, {"user", "2/1h", true, true}, {"detailed", "1/1h", false, true}} {
		d, _, lines := logRefusals(t, tt.keys)
		for range 3 { // a second refusal is not logged within a second
			ask(t, d, tt.key, "ann")
		}
		got := lines()
		if len(got) != 1 {
			t.Fatalf("%d lines", len(got))
		}
		if key, has := got[0]["key"].(string); has != tt.want || strings.Contains(key, "ann") != tt.want {
			t.Errorf("%s with keys %v: %v", tt.key, tt.keys, got[0])
		}
		for key, want := range map[string]any{
			"level": "INFO", "msg": "refused", "domain": "d", "rule": tt.key, "limit": tt.limit, "units": 1.0, "source": "store", "not_logged_before": 0.0,
		} {
			if got[0][key] != want {
				t.Errorf("%s: %s is %v, want %v", tt.key, key, got[0][key], want)
			}
		}
		if retry, _ := got[0]["retry_after"].(float64); retry <= 0 || retry > 3600 {
			t.Errorf("%s: retry_after %v", tt.key, got[0]["retry_after"])
		}
	}
}

// udp returns a statsd server on loopback.
func udp(t *testing.T) net.PacketConn {
	t.Helper()
	conn := servertest.Must(new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() })
	servertest.Check(t, conn.(*net.UDPConn).SetReadBuffer(4<<20))
	return conn
}

// receive reads packets until it has n lines.
func receive(t *testing.T, conn net.PacketConn, n int) []string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var lines []string
	buffer := make([]byte, 1<<16)
	for len(lines) < n {
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%v, after %d lines", err, len(lines))
		}
		if size > udpPayload {
			t.Errorf("a packet of %d bytes", size)
		}
		for line := range strings.Lines(string(buffer[:size])) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestIncrementsAreSentUnderEnvoysNames(t *testing.T) {
	for _, tt := range []struct {
		dog          bool
		first, gauge string
	}{
		{
			false, "ratelimit.service.rate_limit.d.user.total_hits.__commit=a1_2.__team=edge:5|c",
			"ratelimit.redis_pool.cx_active.__commit=a1_2.__team=edge:3|g",
		},
		{
			true, "ratelimit.service.rate_limit.d.user.total_hits:5|c|#commit:a1_2,team:edge",
			"ratelimit.redis_pool.cx_active:3|g|#commit:a1_2,team:edge",
		},
	} {
		server := udp(t)
		registry := stats.New(nil)
		p := newPusher(&Statsd{
			Network: "udp", Addr: server.LocalAddr().String(), Dog: tt.dog, Tags: []string{"commit:a1.2", "team:edge"},
		}, registry, slog.New(slog.DiscardHandler))
		registry.Rule("d.user")[stats.Total].Add(5)
		registry.Service.Calls.Add(1)
		p.push(t.Context())
		if got := receive(t, server, 2); !slices.Contains(got, tt.first) || !strings.HasPrefix(got[1], "ratelimit_server.ShouldRateLimit.total_requests") {
			t.Errorf("%q, want among them %s", got, tt.first)
		}
		registry.Rule("d.user")[stats.Over].Add(2)
		registry.Rule("d.user")[stats.Total].Add(2)
		p.push(t.Context())
		got := receive(t, server, 2)
		for i, want := range []string{"d.user.over_limit", "d.user.total_hits"} {
			if !strings.Contains(got[i], want) || !strings.Contains(got[i], ":2|c") {
				t.Errorf("the second round has %s, want 2 more of %s", got[i], want)
			}
		}
		registry.Redis(func() (opened, closed uint64) { return 3, 0 })
		p.push(t.Context())
		p.push(t.Context())
		got = receive(t, server, 3) // a counter once, and a gauge in each round
		if got[0] != tt.gauge || got[1] != tt.gauge || !strings.Contains(got[2], "cx_total") {
			t.Errorf("%q, want %s twice", got, tt.gauge)
		}
	}
}

// A statsd server over TCP that is away for a while misses nothing, and its absence is logged once.
func TestAServerThatComesLater(t *testing.T) {
	listener := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	addr := listener.Addr().String()
	_ = listener.Close()
	var log bytes.Buffer
	registry := stats.New(nil)
	p := newPusher(&Statsd{Network: "tcp", Addr: addr}, registry, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		registry.Rule("d.user")[stats.Total].Add(1)
		p.push(t.Context())
	}
	if n := strings.Count(log.String(), "do not reach"); n != 1 {
		t.Errorf("%d failures are logged: %s", n, log.String())
	}
	if err := testutil.GatherAndCompare(registry.Prometheus, strings.NewReader(`# HELP sash_export_failures_total Exports of traces or counters that failed.
# TYPE sash_export_failures_total counter
sash_export_failures_total{to="otlp"} 0
sash_export_failures_total{to="statsd"} 3
`), "sash_export_failures_total"); err != nil {
		t.Error(err)
	}
	listener = servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", addr))(t)
	defer func() { _ = listener.Close() }()
	read := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			read <- fmt.Sprint(err)
			return
		}
		defer func() { _ = conn.Close() }()
		text, _ := io.ReadAll(conn)
		read <- string(text)
	}()
	p.push(t.Context())
	if got := <-read; got != "ratelimit.service.rate_limit.d.user.total_hits:3|c\n" {
		t.Errorf("the server reads %q", got)
	}
}
