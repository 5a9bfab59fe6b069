package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/telemetry"
)

// The numbers of docs/metrics.md.
const (
	namesOfRequests = 1000 // that requests bring
	rulesLeft       = 100  // of earlier configurations
	linesOfName     = 5
	namesUnknown    = 101 // domains that are not configured, of 3 lines each, and of one in /stats
	linesOfRule     = 36  // outcomes times sources
	bytesOfLine     = 1 << 10
	subjectsOfState = 30
)

const adminToken = "a token that is long enough for the admin port"

const someRules = `
domain: d
descriptors:
- {key: user, limits: [1000/1h]}
- {key: late, limits: [5/1h]}
- {key: detailed, detailed_metric: true, limits: [5/1h]}
- {key: route, value_to_metric: true, limits: [5/1h], candidate: {limits: [1/1h]}}
`

// A flood is a service, and strangers that may set their own limits.
type flood struct {
	t    *testing.T
	at   Listening
	grpc pb.RateLimitServiceClient
}

func startFlood(t *testing.T, statsd net.Addr) (*flood, func() error) {
	t.Helper()
	at, stop := start(t, Options{
		Variables: at(file(t, someRules)), AccessFile: file(t, "anonymous: {allow: [decide, override]}\n"),
		GRPC: "127.0.0.1:0", Admin: "127.0.0.1:0", AdminAccess: admin.Access{Tokens: []string{adminToken}},
		Telemetry: telemetry.Options{Exporters: telemetry.Exporters{
			Statsd: &telemetry.Statsd{Network: "udp", Addr: statsd.String(), Interval: time.Hour},
		}},
	})
	conn := servertest.Must(grpc.NewClient(at.GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &flood{t, at, pb.NewRateLimitServiceClient(conn)}, stop
}

func (f *flood) post(path, body string) int {
	f.t.Helper()
	status, _ := send(f.t, "POST", f.at.HTTP, path, body)
	return status
}

func (f *flood) admin(path string) string {
	f.t.Helper()
	status, text := send(f.t, "GET", f.at.Admin, path, "", "Authorization", "Bearer "+adminToken)
	if status != http.StatusOK {
		f.t.Fatalf("%s: %d %s", path, status, text)
	}
	return text
}

// invent sends requests of 8 descriptors with request limits, each under a key of its own.
func (f *flood) invent(requests int) {
	for i := range requests {
		req := &pb.RateLimitRequest{Domain: "d"}
		for k := range 8 {
			req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: fmt.Sprintf("own %d %d", i, k), Value: "x"}},
				Limit:   &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR},
			})
		}
		_ = servertest.Must(f.grpc.ShouldRateLimit(f.t.Context(), req))(f.t)
	}
}

// vary sends what else a stranger may: through every path, with values, keys and bytes of any kind.
func (f *flood) vary(n int) {
	long := strings.Repeat("k.", 3000)
	for i := range n {
		json := func(domain, key, value string) string {
			return fmt.Sprintf(`{"domain":%q,"entries":[{"key":%q,"value":%q}]}`, domain, key, value)
		}
		f.post("/v1/allow", json("d", "detailed", fmt.Sprint(long[:i%200], i)))
		f.post("/v1/allow", json(fmt.Sprint("unknown ", i), "user", "x"))
		f.post("/v1/peek", json("d", fmt.Sprint("key ", i), long))
		f.post("/v1/allow", fmt.Sprintf(`{"domain":"d","entries":[{"key":"user","value":"stranger %d"}],"cost":1000000}`, i))
		f.post("/json", fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":"route","value":"%d%s"}]},`+
			`{"entries":[{"key":"%s%d"}],"limit":{"requests_per_unit":5,"unit":"HOUR"}}]}`, i, long, long, i))
		send(f.t, "GET", f.at.HTTP, "/v1/forward-auth?domain=d&descriptor="+url.QueryEscape(fmt.Sprintf("route=\xff%c\n|:%d", 0xfe, i)), "",
			"X-Forwarded-For", "192.0.2.7")
	}
}

func TestStrangersMakeNoMoreSeriesThanDocumented(t *testing.T) {
	statsd := servertest.Must(new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	defer func() { _ = statsd.Close() }()
	_ = statsd.(*net.UDPConn).SetReadBuffer(8 << 20)
	f, stop := startFlood(t, statsd.LocalAddr())
	f.post("/v1/allow", `{"domain":"d","entries":[{"key":"user","value":"ann"}],"cost":100}`)
	lines := func(text string) int { return strings.Count(text, "\n") }
	metrics, stats := lines(f.admin("/metrics")), lines(f.admin("/stats"))

	f.invent(1280)
	f.vary(400)
	if status := f.post("/v1/allow", `{"domain":"d","entries":[{"key":"late","value":"ann"}]}`); status != http.StatusOK {
		t.Fatal(status)
	}

	rules := len(f.at.Config.Rules()) + 1 // and a candidate
	names := linesOfName * (rules + namesOfRequests + 1)
	most := metrics + names + 3*namesUnknown + linesOfRule*(rules+len(f.at.Config.Domains())+rulesLeft+1)
	text := f.admin("/metrics")
	t.Logf("/metrics: %d lines, %d bytes; %d lines before", lines(text), len(text), metrics)
	if got := lines(text); got > most || len(text) > most*bytesOfLine || got < names/2 {
		t.Errorf("/metrics has %d lines and %d bytes, at most %d lines are documented", got, len(text), most)
	}
	has(t, text, // of the rule that was used last
		`ratelimit_service_rate_limit_total_hits{domain="d",key1="late"} 1`+"\n",
		`sash_decisions_total{domain="d",outcome="allowed",rule="late",source="store"} 1`+"\n")
	text, names = f.admin("/stats"), names+namesUnknown
	if got := lines(text); got > stats+names || len(text) > (stats+names)*bytesOfLine {
		t.Errorf("/stats has %d lines and %d bytes, at most %d lines are documented", got, len(text), stats+names)
	}
	state := f.admin("/admin/v1/state")
	if size := len(state); size > bytesOfLine*(rules+len(f.at.Config.Domains())+3)+subjectsOfState*4*bytesOfLine {
		t.Errorf("the state has %d bytes", size)
	}
	if _, top, _ := strings.Cut(state, `"top":{`); !strings.Contains(top, `"units":[{"subject":"d:user:ann"`) {
		t.Errorf("the hottest are %s", top)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := count(statsd); got > stats+names || got < namesOfRequests {
		t.Errorf("statsd received %d counters, at most %d are documented", got, stats+names)
	}
}

// count returns how many counters have arrived.
func count(conn net.PacketConn) (n int) {
	packet := make([]byte, 64<<10)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		size, _, err := conn.ReadFrom(packet)
		if err != nil {
			return n
		}
		n += len(strings.Split(strings.TrimSpace(string(packet[:size])), "\n"))
	}
}
