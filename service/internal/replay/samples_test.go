package replay

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/sash/service/internal/replay/accesslog"
)

const samples = "accesslog/testdata/samples"

// sampleCost is what brute.py charges. 2.5 is rounded up.
const sampleCost = `path == "/search" ? 5 : method == "POST" ? 2.5 : 1.0`

// expected is what brute.py computed from the traffic, without a log.
type expected struct {
	Requests, Units int64
	Clients         int
	Limits          map[string]struct{ Refused, Clients int64 }
}

// A sent is one request of the traffic.
type sent struct {
	second                              int64
	address, forwarded, method, request string
}

func sampleTraffic(t *testing.T) (all []sent, want expected) {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(samples, "traffic.tsv")))
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		second, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || len(f) != 5 {
			t.Fatal(line, err)
		}
		all = append(all, sent{second, f[1], f[2], f[3], f[4]})
	}
	answers, err := os.ReadFile(filepath.Join(samples, "expected.json"))
	if err == nil {
		err = json.Unmarshal(answers, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all, want
}

// The same traffic through real programs gives the same requests, clients, times, costs and refusals, whatever the log is
// and whatever stands around its lines: those that a brute force over the traffic gives.
func TestTheSameTrafficGivesTheSameAnswer(t *testing.T) {
	const (
		main    = `log_format main '$remote_addr - $remote_user [$time_local] "$request" ' '$status $body_bytes_sent "$http_referer" ' '"$http_user_agent" "$http_x_forwarded_for"';`
		own     = `$msec|$remote_addr:$remote_port|$request_method $scheme://$host$request_uri|$status|$request_time|$http_user_agent`
		apache  = `LogFormat "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" combined`
		theirs  = `LogFormat "%{%Y-%m-%d %T}t.%{usec_frac}t %a %{X-Forwarded-For}i %m %U%q %>s %D \"%{User-Agent}i\"" own`
		rfc3164 = "syslog (RFC 3164)"
		rfc5424 = "syslog (RFC 5424)"
	)
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	all, want := sampleTraffic(t)
	seen := make(map[string]bool)
	for _, tt := range []struct {
		file             string
		opts             accesslog.Options
		format, wrapping string
		broken, messages int64
		forwarded        bool // the clients are those of X-Forwarded-For
	}{
		{file: "nginx-combined.log", format: "combined"},
		{file: "nginx-main.log", format: "combined with X-Forwarded-For (nginx's main)"},
		{file: "nginx-main.log", format: "combined with X-Forwarded-For (nginx's main)", opts: accesslog.Options{Trusted: trusted}, forwarded: true},
		{file: "nginx-main.log", format: "the given log format", opts: accesslog.Options{Format: main}},
		{file: "nginx-main.log", format: "the given log format", opts: accesslog.Options{Format: main, Trusted: trusted}, forwarded: true},
		{file: "nginx-forwarded-first.log", format: "combined", forwarded: true},
		{file: "nginx-own.log", format: "the given log format", opts: accesslog.Options{Format: own}},
		{file: "nginx-json.log", format: "json (nginx)"},
		{file: "nginx-json.log", format: "json (nginx)", opts: accesslog.Options{Trusted: trusted}, forwarded: true},
		{file: "nginx-syslog.log", format: "combined", wrapping: rfc3164},
		{file: "apache-combined.log", format: "combined"},
		{file: "apache-combined.log", format: "the given log format", opts: accesslog.Options{Format: apache}},
		{file: "apache-vhost-combined.log", format: "combined behind the host (vhost_combined)"},
		{file: "apache-own.log", format: "the given log format", opts: accesslog.Options{Format: theirs}},
		{file: "apache-own.log", format: "the given log format", opts: accesslog.Options{Format: theirs, Trusted: trusted}, forwarded: true},
		{file: "haproxy.log", format: "haproxy"},
		{file: "haproxy-rfc5424.log", format: "haproxy", wrapping: rfc5424},
		{file: "caddy.log", format: "json (Caddy)", messages: 14},
		{file: "caddy.log", format: "json (Caddy)", messages: 14, opts: accesslog.Options{Trusted: trusted}, forwarded: true},
		{file: "containerd.log", format: "combined", wrapping: "CRI (containerd, CRI-O)", broken: 1},
		{file: "docker-json.log", format: "combined", wrapping: "Docker's JSON", broken: 1},
		{file: "compose.log", format: "combined", wrapping: "names of containers (compose)", broken: 2},
		{file: "syslog-rfc3164.log", format: "combined", wrapping: rfc3164},
		{file: "syslog-rfc5424.log", format: "combined", wrapping: rfc5424},
		{file: "syslog-file.log", format: "combined", wrapping: rfc3164},
		{file: "journald-json.log", format: "combined", wrapping: "journald's JSON"},
		{file: "journald-short.log", format: "combined", wrapping: rfc3164},
		{file: "journald-short-iso.log", format: "combined", wrapping: rfc3164},
	} {
		seen[tt.file] = true
		name := tt.file + " with " + fmt.Sprintf("%+v", tt.opts)
		log := must(os.Open(filepath.Join(samples, tt.file)))
		selector := must(NewSelector(Expressions{Cost: sampleCost}))
		var b Builder
		var got []sent
		var units int64
		stats, err := accesslog.Read(tt.file, log, tt.opts, func(r *accesslog.Record) error {
			selection, _, err := selector.Select(r)
			second := r.Time / 1_000_000
			b.Add(second*1_000_000, selection)
			units += selection.Cost
			one := sent{second: second, address: r.RemoteAddress, method: r.Method, request: strings.TrimSuffix(r.Path+"?"+r.Query, "?")}
			if r.Status != 204 || r.UserAgent != "" && r.UserAgent != `sample/1.0 (a "quoted" word)` {
				t.Errorf("%s: %+v", name, r)
			}
			got = append(got, one)
			return err
		})
		_ = log.Close()
		if err != nil || stats.Format != tt.format || stats.Wrapping != tt.wrapping || stats.Broken != tt.broken || stats.Messages != tt.messages {
			t.Errorf("%s: %+v, %v", name, stats, err)
			continue
		}
		requests := slices.Clone(all)
		for i := range requests {
			if tt.forwarded {
				requests[i].address = requests[i].forwarded
			}
			requests[i].forwarded = ""
		}
		if !slices.Equal(got, requests) {
			t.Errorf("%s: the requests differ from those that were sent:\n%v\n%v", name, got, requests)
		}
		trace := b.Trace()
		if trace.Clients() != want.Clients || trace.Counts().Requests != want.Requests || units != want.Units {
			t.Errorf("%s: %d clients, %d requests, %d units; want %+v", name, trace.Clients(), trace.Counts().Requests, units, want)
		}
		for text, limited := range want.Limits {
			limits := must(ParseLimits(text))
			outcome, err := trace.Run([]Candidate{{Limits: limits}}, 5, nil)
			if err != nil || outcome[0].Refused != limited.Refused || outcome[0].ClientsLimited != limited.Clients {
				t.Errorf("%s: %s refuses %d to %d clients, %v; want %+v", name, text, outcome[0].Refused, outcome[0].ClientsLimited, err, limited)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(samples, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !seen[filepath.Base(file)] {
			t.Errorf("no test reads %s", file)
		}
	}
}
