package accesslog

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/servertest"
)

func read(t *testing.T, text string, opts Options) ([]Record, Stats) {
	t.Helper()
	var all []Record
	stats := servertest.Must(Read("log", strings.NewReader(text), opts, func(r *Record) error {
		all = append(all, *r)
		return nil
	}))(t)
	return all, stats
}

// same compares a record with one without a time, and with that time.
func same(t *testing.T, name string, got, want Record, at time.Time) {
	t.Helper()
	if strings.Contains(got.from, " less ") {
		got.Time = got.Written
	}
	got.other, got.has, got.leads, got.unit, got.from, got.around, got.Written, got.Ended = nil, 0, false, 0, "", "", 0, false
	want.Time = at.UnixMicro()
	if got != want {
		t.Errorf("%s: %+v\n\twant %+v", name, got, want)
	}
}

func TestEveryFormatIsFoundOutAndRead(t *testing.T) {
	at := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	for name, tt := range map[string]struct {
		line   string
		want   Record // without the time
		at     time.Time
		format string
	}{
		"common": {
			`192.0.2.7 - frank [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.0" 200 2326`,
			Record{RemoteAddress: "192.0.2.7", User: "frank", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Bytes: 2326}, at, "combined",
		},
		"combined": {
			`2001:db8::1 - - [17/May/2015:10:05:03 +0000] "POST /a HTTP/1.1" 404 - "http://example.com/" "say \"hi\""`,
			Record{RemoteAddress: "2001:db8::1", Method: "POST", Path: "/a", Status: 404, Referer: "http://example.com/", UserAgent: `say "hi"`}, at, "combined",
		},
		"combined, not HTTP": {
			`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 0 "-" "-"`,
			Record{RemoteAddress: "192.0.2.7", Status: 400}, at, "combined",
		},
		"combined, a user with spaces": {
			`192.0.2.7 - a b c [17/May/2015:10:05:03 +0000] "-" 408 - "-" "-" 0.003`,
			Record{RemoteAddress: "192.0.2.7", User: "a b c", Status: 408}, at, "combined",
		},
		"nginx JSON": {
			`{"time_iso8601":"2015-05-17T10:05:03+00:00","remote_addr":"192.0.2.7","remote_user":"-","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"7","request_time":"0.25","http_user_agent":"curl"}`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Bytes: 7, Duration: 0.25, UserAgent: "curl"}, at, "json (nginx)",
		},
		"Caddy": {
			`{"level":"info","ts":1431857103.0000015,"logger":"http.log.access","request":{"remote_ip":"192.0.2.7","remote_port":"4","client_ip":"192.0.2.8","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/a?b","headers":{"User-Agent":["curl"]}},"user_id":"","duration":0.5,"size":9,"status":200}`,
			Record{RemoteAddress: "192.0.2.8", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 9, Duration: 0.5, UserAgent: "curl", Host: "example.com"}, at.Add(2 * time.Microsecond), "json (Caddy)",
		},
		"Envoy": {
			`{"start_time":"2015-05-17T10:05:03.123Z","downstream_remote_address":"192.0.2.7:4711","method":"GET","path":"/a","response_code":503,"bytes_sent":57,"duration":3,"authority":"example.com","user_agent":"curl","x_forwarded_for":null}`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Status: 503, Bytes: 57, Duration: 3, UserAgent: "curl", Host: "example.com"}, at.Add(123 * time.Millisecond), "json (Envoy)",
		},
		"load balancer": {
			`http 2015-05-17T10:05:03.186641Z app/lb/50dc6c 192.0.2.7:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://example.com:80/a?b HTTP/1.1" "curl/7.46.0" - - arn:x "Root=1-58337262" "-" "-" 0`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 366, Duration: 0.001, UserAgent: "curl/7.46.0"}, at.Add(186641 * time.Microsecond), "alb",
		},
		"CSV": {
			"time,client_ip,method,url,status,user\n2015-05-17 10:05:03,192.0.2.7,GET,\"/a,b\",200,u",
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a,b", Status: 200, User: "u"}, at, "csv",
		},
		"HAProxy": {
			`2001:db8::7:33317 [17/May/2015:10:05:03.123] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu|a} {} "GET /a?b HTTP/1.1"`,
			Record{RemoteAddress: "2001:db8::7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 2750, Duration: 109}, at.Add(123 * time.Millisecond), "haproxy",
		},
		"HAProxy without a response": {
			`192.0.2.7:33317 [17/May/2015:10:05:03.123] http-in static/<NOSRV> -1/-1/-1/-1/+12 -1 +0 - - CR-- 1/1/1/1/0 0/0 "<BADREQ>"`,
			Record{RemoteAddress: "192.0.2.7", Duration: 12}, at.Add(123 * time.Millisecond), "haproxy",
		},
		"Traefik": {
			`192.0.2.7 - u [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl" 42 "r@docker" "http://10.0.0.1:80" 12ms`,
			Record{RemoteAddress: "192.0.2.7", User: "u", Method: "GET", Path: "/a", Status: 200, Bytes: 5, UserAgent: "curl", Duration: 12}, at, "combined (Traefik)",
		},
		"Traefik JSON": {
			`{"ClientAddr":"192.0.2.7:4711","ClientHost":"192.0.2.7","ClientUsername":"-","DownstreamContentSize":5,"DownstreamStatus":200,"Duration":1200,"RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/a?b","StartUTC":"2015-05-17T10:05:03.123Z","request_User-Agent":"curl","request_X-Forwarded-For":"192.0.2.9","time":"2015-05-17T10:05:04Z"}`,
			Record{RemoteAddress: "192.0.2.7", ForwardedFor: "192.0.2.9", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 5, Duration: 1200, Host: "example.com", UserAgent: "curl"}, at.Add(123 * time.Millisecond), "json (Traefik)",
		},
		"Envoy text": {
			`[2015-05-17T10:05:03.123Z] "GET /a?b HTTP/1.1" 200 - 0 5 3 2 "192.0.2.7, 10.0.0.1" "curl" "cc21" "example.com" "10.0.0.1:80"`,
			Record{RemoteAddress: "192.0.2.7", ForwardedFor: "192.0.2.7, 10.0.0.1", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 5, Duration: 3, Host: "example.com", UserAgent: "curl"}, at.Add(123 * time.Millisecond), "envoy",
		},
		"Istio": {
			`[2015-05-17T10:05:03.123Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 5 3 2 "-" "curl" "cc21" "example.com" "127.0.0.1:80" inbound|80|| 127.0.0.6:1 10.0.0.2:80 192.0.2.7:4711 - default`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Status: 200, Bytes: 5, Duration: 3, Host: "example.com", UserAgent: "curl"}, at.Add(123 * time.Millisecond), "envoy",
		},
		"classic load balancer": {
			`2015-05-17T10:05:03.186641Z my-lb 192.0.2.7:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://example.com:80/a?b HTTP/1.1" "curl/7.38.0" - -`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 29, Duration: 0.001048, UserAgent: "curl/7.38.0"}, at.Add(186641 * time.Microsecond), "elb (classic)",
		},
		"S3": {
			`79a5 bucket1 [17/May/2015:10:05:03 +0000] 192.0.2.7 arn:user 3E57 REST.GET.OBJECT a "GET /a?b HTTP/1.1" 404 NoSuchKey 297 - 38 7 "-" "curl" - s9lz= SigV4 ECDHE-RSA AuthHeader bucket1.s3 TLSV1.2`,
			Record{RemoteAddress: "192.0.2.7", User: "arn:user", Method: "GET", Path: "/a", Query: "b", Status: 404, Bytes: 297, Duration: 38, UserAgent: "curl"}, at, "s3",
		},
		"CloudFront": {
			"#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query x-host-header time-taken\n" +
				"2015-05-17\t10:05:03\tLHR62\t297\t192.0.2.7\tGET\td1.cloudfront.net\t/a\t200\t-\tcurl\tb=c\texample.com\t0.250",
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Bytes: 297, Duration: 0.25, Host: "example.com", UserAgent: "curl"}, at, "csv",
		},
		"CloudFront without its header": {
			"2015-05-17\t10:05:03\tLHR62\t297\t192.0.2.7\tGET\td1.cloudfront.net\t/a\t200\t-\tcurl\tb=c\t-\tHit\tid==\texample.com\thttps\t23\t0.250\t-",
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b=c", Status: 200, Bytes: 297, Duration: 0.25, Host: "example.com", UserAgent: "curl"}, at, "cloudfront",
		},
		"IIS": {
			"#Software: IIS\n#Fields: date time c-ip cs-username cs-method cs-uri-stem cs-uri-query sc-status time-taken cs(User-Agent)\n2015-05-17 10:05:03 192.0.2.7 - GET /a b 200 15 curl\n#Date: 2015",
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Duration: 15, UserAgent: "curl"}, at, "csv",
		},
		"Squid": {
			`1431857103.123    250 192.0.2.7 TCP_MISS/200 507 GET http://example.com/a?b - DIRECT/192.0.2.9 text/html`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 507, Duration: 250}, at.Add(123 * time.Millisecond), "squid",
		},
		"Heroku": {
			`2015-05-17T10:05:03.123456+00:00 heroku[router]: at=info method=GET path="/a?b" host=example.com request_id=8601 fwd="192.0.2.7" dyno=web.1 connect=1ms service=18ms status=200 bytes=13 protocol=https`,
			Record{RemoteAddress: "192.0.2.7", ForwardedFor: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 13, Duration: 18, Host: "example.com"}, at.Add(123456 * time.Microsecond), "logfmt",
		},
		"gcloud": {
			"[\n  {\n    \"httpRequest\": {\"latency\": \"0.058927s\", \"remoteIp\": \"192.0.2.7\", \"requestMethod\": \"GET\",\n \"requestUrl\": \"https://example.com/a?b\",\n \"responseSize\": \"1467\", \"status\": 302, \"userAgent\": \"curl\"},\n    \"timestamp\": \"2015-05-17T10:05:03Z\"\n  }\n]",
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 302, Bytes: 1467, Duration: 0.058927, UserAgent: "curl"}, at, "json (gcloud)",
		},
		"Loki": {
			`2015-05-17T10:06:00Z {app="web", pod="a"}   192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 5`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Bytes: 5}, at, "combined",
		},
		"Loki, of lines without a time": {
			`{"labels":{"app":"web"},"line":"method=GET path=/a remote_addr=192.0.2.7 status=200","timestamp":"2015-05-17T10:05:03Z"}`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Status: 200}, at, "logfmt",
		},
		"logfmt": {
			`time=2015-05-17T10:05:03.123Z level=info method=GET path="/a?b" remote_addr=192.0.2.7:80 status=200 duration=12ms user_agent="a \"b\""`,
			Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200, Duration: 12, UserAgent: `a "b"`}, at.Add(123 * time.Millisecond), "logfmt",
		},
	} {
		all, stats := read(t, tt.line+"\n", Options{})
		if len(all) != 1 || stats.Broken != 0 || stats.Format != tt.format {
			t.Errorf("%s: %d records, %+v", name, len(all), stats)
			continue
		}
		same(t, name, all[0], tt.want, tt.at)
	}
}

// The time of a record is the start of the request where the line has it or where it can be computed.
func TestARequestIsAtItsStart(t *testing.T) {
	const end, second = 1431857103_000_000, 1_000_000 // microseconds
	clf, haproxy := "17/May/2015:10:05:03 +0000", `192.0.2.7:33317 [17/May/2015:10:05:03.000] http-in static/srv1 10/0/30/69/1500 200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`
	for name, tt := range map[string]struct {
		format, line  string
		ended         bool
		time, written int64
		says          string
	}{
		"nginx":                             {`$remote_addr [$time_local] $request_time "$request" $status`, "192.0.2.7 [" + clf + `] 1.500 "GET / HTTP/1.1" 200`, false, end - 3*second/2, end, "time_local less request_time"},
		"nginx, a connection cut":           {`$remote_addr $msec $request_time $status`, "192.0.2.7 1431857103.000 - 200", true, end, end, ""},
		"nginx JSON":                        {"", `{"time":"2015-05-17T10:05:03Z","remote_addr":"192.0.2.7","request_time":"0.250"}`, false, end - second/4, end, "time less request_time"},
		"AWS":                               {"", `http 2015-05-17T10:05:03.000000Z app/lb/50dc6c 192.0.2.7:2817 10.0.0.1:80 0.000 59.0 0.000 200 200 34 366 "GET http://example.com:80/a?b HTTP/1.1" "curl/7.46.0" - - arn:x "Root=1-58337262" "-" "-" 0 2015-05-17T10:04:03.000000Z "forward" "-" "-"`, false, end - 60*second, end - second, "request_creation_time"},
		"Caddy":                             {"", `{"ts":1431857103,"request":{"remote_ip":"192.0.2.7"},"duration":2.5,"status":200}`, false, end - 5*second/2, end, "ts less duration"},
		"HAProxy":                           {"", haproxy, false, end, end + 3*second/2, "start_time"},
		"Apache's %t":                       {`%h %t "%r" %>s %D`, "192.0.2.7 [" + clf + `] "GET / HTTP/1.1" 200 1500000`, false, end, end + 3*second/2, "start_time_local"},
		"Apache's %t alone":                 {`%h %t "%r" %>s`, "192.0.2.7 [" + clf + `] "GET / HTTP/1.1" 200`, false, end, 0, "start_time_local"},
		"Apache's end":                      {`%h %{end:sec}t "%r" %>s %{ms}T`, `192.0.2.7 1431857103 "GET / HTTP/1.1" 200 1500`, false, end - 3*second/2, end, "sec less request_time_ms"},
		"combined":                          {"", "192.0.2.7 - - [" + clf + `] "GET / HTTP/1.1" 200 7 "-" "-"`, true, end, end, ""},
		"a program":                         {"", `time=2015-05-17T10:05:03Z method=GET path=/ duration=1.5s`, false, end - 3*second/2, end, "time less duration"},
		"CloudFront":                        {"", "#Fields: date time x-edge-location c-ip time-taken\n2015-05-17\t10:05:03\tLHR\t192.0.2.7\t1.500", false, end - 3*second/2, end, "time less time_taken"},
		"IIS":                               {"", "#Fields: date time c-ip time-taken\n2015-05-17 10:05:03 192.0.2.7 1500", false, end - 3*second/2, end, "time less time-taken"},
		"gcloud":                            {"", `{"timestamp":"2015-05-17T10:05:03Z","httpRequest":{"latency":"1.5s","status":200}}`, false, end, end + 3*second/2, "timestamp"},
		"an unknown unit":                   {"", `time=2015-05-17T10:05:03Z method=GET path=/ duration=1.5`, true, end, end, ""},
		"a program, no duration":            {"", `{"@timestamp":"2015-05-17T10:05:03Z","method":"GET","path":"/"}`, true, end, end, ""},
		"the time around a line":            {"", "2015-05-17T10:05:03Z stdout F method=GET path=/", true, end, end, ""},
		"IIS, no duration":                  {"", "#Fields: date time c-ip\n2015-05-17 10:05:03 192.0.2.7", true, end, end, ""},
		"Envoy, no duration":                {"", `{"start_time":"2015-05-17T10:05:03Z","response_code":200}`, false, end, 0, "start_time"},
		"somebody's table":                  {"", "time,client_ip\n2015-05-17 10:05:03,192.0.2.7", true, end, end, ""},
		"a table of starts":                 {"", "start_time,client_ip\n2015-05-17 10:05:03,192.0.2.7", false, end, 0, "start_time"},
		"several upstreams":                 {"", `{"msec":"1431857103.000","remote_addr":"192.0.2.7","upstream_response_time":"1.5, - : 0.25"}`, false, end - 7*second/4, end, "msec less upstream_response_time"},
		"Go's durations":                    {"", `time=2015-05-17T10:05:03Z method=GET path=/ duration=1m1.5s`, false, end - 123*second/2, end, "time less duration"},
		"milliseconds by a name of seconds": {"", `{"ts":1431857103.5,"remote_ip":"192.0.2.7","duration":20}`, true, end + second/2, end + second/2, ""},
		"a negative duration":               {"", `{"msec":"1431857103","remote_addr":"192.0.2.7","request_time":"-0.5"}`, true, end, end, ""},
		"AWS, no answer":                    {"", `http 2015-05-17T10:05:03.000000Z app/lb/50dc6c 192.0.2.7:2817 10.0.0.1:80 0.000 -1 0.000 504 - 34 366 "GET http://example.com:80/a?b HTTP/1.1" "curl/7.46.0" - - arn:x "Root=1-58337262" "-" "-" 0 2015-05-17T10:04:03.000000Z "forward" "-" "-"`, false, end - 60*second, 0, "request_creation_time"},
	} {
		all, stats := read(t, tt.line, Options{Format: tt.format})
		if len(all) != 1 || all[0].Ended != tt.ended || (stats.Ends == 1) != tt.ended || all[0].Time != tt.time || all[0].Written != tt.written || stats.Times != tt.says {
			t.Errorf("%s: %+v, %+v", name, all, stats)
		}
	}
}

func TestOtherFieldsAndHeaders(t *testing.T) {
	all, _ := read(t, `{"ts":1431857103,"request":{"headers":{"X-Api-Key":["k1","k2"]}},"tls":{"resumed":true}}`, Options{})
	if r := all[0]; r.Header("X-Api-Key") != "k1" || r.Field("tls.resumed") != "true" || r.Field("tls") != "" || r.Field("no.thing") != "" {
		t.Errorf("%+v", r)
	}
	all, _ = read(t, "when,http_x_api_key,other\n1431857103,k,o\n", Options{Fields: map[string]string{"time": "when"}})
	if r := all[0]; r.Header("x-api-key") != "k" || r.Field("other") != "o" {
		t.Errorf("%+v", r)
	}
	for format, field := range map[string]string{`$msec "$http_x_api_key" $tenant`: "tenant", `%{sec}t "%{X-Api-Key}i" %{tenant}e`: "env_tenant"} {
		all, _ = read(t, `1431857103 "k1" ab`, Options{Format: format})
		if r := all[0]; r.Header("X-Api-Key") != "k1" || r.Field(field) != "ab" || r.Field("none") != "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"1431857103":                    1431857103_000000,
		"1431857103.25":                 1431857103_250000,
		"1431857103.1234567":            1431857103_123457,
		"1431857103123":                 1431857103_123000,
		"1431857103123.5":               1431857103_123500,
		"1431857103123456":              1431857103_123456,
		"1431857103123456789":           1431857103_123457,
		"1.431857103e9":                 1431857103_000000,
		"2015-05-17T10:05:03Z":          1431857103_000000,
		"2015-05-17T10:05:03.000001Z":   1431857103_000001,
		"2015-05-17T12:05:03+02:00":     1431857103_000000,
		"2015-05-17T12:05:03+0200":      1431857103_000000,
		"2015-05-17 10:05:03":           1431857103_000000,
		"2015-05-17 10:05:03.5":         1431857103_500000,
		"2015-05-17 12:05:03 +0200":     1431857103_000000,
		"17/May/2015:10:05:03 +0000":    1431857103_000000,
		"yesterday":                     0,
		"":                              0,
		"12":                            0,
		"17/May/2015":                   0,
		"2015-05-17":                    0,
		"99999999999999999999999999999": 0,
		"-1431857103":                   0,
	} {
		got, err := parseTime(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestBrokenLinesAreCountedAndShown(t *testing.T) {
	good := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-"` + "\n"
	text := "garbage\n" + good + "\n\r\n" + strings.Repeat("x", maxLine+1) + "\n" + good +
		"192.0.2.7 - - [17/May/2015:25:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n" +
		"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" two 1\n" +
		"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 -1\n" +
		"\xff\xfe - - [17/May/2015:10:05:03 +0000] \"GET /\n" + strings.TrimSuffix(good, "\n")
	all, stats := read(t, text, Options{})
	if len(all) != 3 || stats.Broken != 6 || stats.Lines != 9 || stats.Records != 3 || len(stats.First) != 5 {
		t.Fatalf("%d records, %+v", len(all), stats)
	}
	for i, want := range []struct {
		line   int64
		reason string
	}{{1, "not of the form"}, {5, "longer than"}, {7, "invalid time"}, {8, "the status"}, {9, "the size"}} {
		if b := stats.First[i]; b.Line != want.line || !strings.Contains(b.Reason, want.reason) || len(b.Text) > shownText || b.File != "log" {
			t.Errorf("%+v, want line %d: %s", b, want.line, want.reason)
		}
	}
}

func TestAnArrayOfObjectsIsALineEach(t *testing.T) {
	array := ` [{"time":1431857103,"path":"/a"} , {"time":1431857104,` + "\n" + `"path":"/b"},7,{"time":1431857105,"path":"/c"}]` + "\n"
	all, stats := read(t, array, Options{})
	if len(all) != 3 || all[1].Path != "/b" || stats.Broken != 1 || stats.First[0].Line != 3 {
		t.Errorf("%+v, %+v", all, stats)
	}
	stats, err := countRead(t, strings.NewReader(array[:80]))
	if stats.Records != 2 || err == nil || !strings.Contains(err.Error(), "the JSON data is cut off") {
		t.Errorf("%+v, %v", stats, err)
	}
}

// An element of an array is as long as a line may be. A longer one is not kept in memory.
func TestAnElementIsNoLongerThanALine(t *testing.T) {
	for length, want := range map[int]int64{maxLine - 100: 3, 3 * maxLine: 1} {
		from := strings.NewReader(`[{"time":1431857103,"status":200},{"time":1431857103,"status":200,"x":"` + strings.Repeat("a", length) + `"},{"time":1431857103,"status":200}]`)
		stats, err := countRead(t, from)
		if damaged := (*DamagedError)(nil); stats.Records != want || errors.As(err, &damaged) != (want == 1) || (from.Len() > maxLine) != (want == 1) {
			t.Errorf("%d: %d records, %v, %d bytes left", length, stats.Records, err, from.Len())
		}
	}
}

// What follows an array is read too, or called damage.
func TestNothingBehindAnArrayIsLost(t *testing.T) {
	array, object := `[{"time":1431857103,"path":"/a"},{"time":1431857104,"path":"/b"}]`, `{"time":1431857105,"path":"/c"}`
	for text, want := range map[string]struct {
		records int64
		damaged bool
	}{
		array + "\n" + array: {4, false}, array + array + " \n\t": {4, false}, array + "[]\n" + object + "\n" + object + array: {6, false},
		array + "\n" + strings.Repeat(" ", 3*readAhead) + array: {4, false}, array + "[" + object: {3, true}, array + "," + array: {2, true},
		array + "]" + array: {2, true}, array + "}": {2, true}, array + "\nthe end": {2, true}, array + object[:9]: {2, true},
		"[" + object + "}" + array: {1, true},
	} {
		stats, err := countRead(t, strings.NewReader(text))
		var damaged *DamagedError
		if errors.As(err, &damaged) != want.damaged || err != nil && !want.damaged || stats.Records != want.records || stats.Broken != 0 {
			t.Errorf("%.150s: %+v, %v", text, stats, err)
		}
	}
}

func TestLinesOfAnotherFormatAreNamed(t *testing.T) {
	_, stats := read(t, strings.Repeat(wrappedLine+"\n"+`{"time":1431857103,"remote_addr":"192.0.2.7","status":200}`+"\n", 3), Options{})
	if stats.Records != 3 || stats.Broken != 3 || !strings.HasSuffix(stats.First[0].Reason, "; it is json (nginx)") {
		t.Errorf("%+v", stats)
	}
}

func TestStatsSayWhatWasUnderstood(t *testing.T) {
	_, stats := read(t, `{"time":1431857103,"remote_addr":"192.0.2.7"}`+"\n"+`{"time":1431857103,"remote_addr":"-","status":200}`, Options{})
	if stats.Format != "json (nginx)" || stats.Records != 2 {
		t.Errorf("%+v", stats)
	}
	sum := Stats{}
	for _, more := range []Stats{stats, stats, {Format: "csv", Wrapping: "w", Notes: []string{"a", "b"}}, {Notes: []string{"b"}}} {
		sum.Add(more)
	}
	if sum.Format != "json (nginx), csv" || sum.Wrapping != "w" || len(sum.Notes) != 2 {
		t.Errorf("%+v", sum)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		opts Options
		want string
	}{
		"no format":           {"hello\nworld\n", Options{}, "have no known format (json, combined, haproxy, envoy, alb, s3, cloudfront, squid, logfmt, csv). Give"},
		"near JSON":           {`{"when":"now","b":{"c":1}}`, Options{}, "The nearest is json without a time; the first line has b, when. Give"},
		"near logfmt":         {"when=now b=1", Options{}, "The nearest is logfmt without a time; the first line has b, when. Give"},
		"near CSV":            {"when\tb\tc", Options{}, "The nearest is csv without a column for the time; the first line has when, b, c. Give"},
		"near combined":       {`192.0.2.7 - - [17/May/2015:10:05:03 +0000] GET / 200`, Options{}, `The nearest is combined (Traefik), but " [" is missing behind $remote_user; the first line has remote_addr, ident. Give`},
		"CSV without a time":  {"a,b\n1,2\n", Options{Format: "csv"}, "no column for the time"},
		"a column twice":      {"time,a,a\n1,2,3\n", Options{Format: "csv"}, `column "a" twice`},
		"unknown field":       {"", Options{Fields: map[string]string{"tine": "x"}}, `unknown field "tine"`},
		"a callback's errors": {`{"time":1431857103}`, Options{}, "log:1: stop"},
	} {
		_, err := Read("log", strings.NewReader(tt.text), tt.opts, func(*Record) error { return errors.New("stop") })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if all, stats := read(t, "\n\n", Options{}); len(all) != 0 || stats.Lines != 0 {
		t.Error("an empty log is no mistake")
	}
}

// What editors and copying leave around lines is in no client's name.
func TestBytesAroundLinesAreNoPartOfThem(t *testing.T) {
	line := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1`
	object := `{"time":1431857103,"remote_addr":"192.0.2.7","path":"/a","status":200}`
	for name, text := range map[string]string{
		"a line":                                 line,
		"before an object":                       object,
		"before a table":                         "time,remote_addr,path\n1431857103,192.0.2.7,/a",
		"before a wrapping":                      "2015-05-17T10:05:03Z stdout F " + line,
		"NULs where a file was truncated":        strings.Repeat("\x00", 5000) + line + "\n",
		"a hole of more than what is read ahead": strings.Repeat("\x00", readAhead+9) + line + "\n",
		"a hole of more than a line":             strings.Repeat("\x00", 2*maxLine) + line + "\n",
		"NULs at the end, after a crash":         line + "\n" + strings.Repeat("\x00", 5000),
		"line ends of another system":            line + "\r\n\r\n",
		"the port of the client":                 strings.Replace(line, "192.0.2.7", "192.0.2.7:4711", 1),
		"a name with brackets and a space":       strings.Replace(line, "- [", "a [17/May/2015:10:05:04 +0000] b [", 1),
	} {
		for _, before := range []string{"", byteOrderMark} {
			all, stats := read(t, before+text, Options{})
			if len(all) != 1 || all[0].RemoteAddress != "192.0.2.7" || all[0].Path != "/a" || all[0].Time != 1431857103_000_000 || stats.Broken != 0 {
				t.Errorf("%s: %+v, %+v", name, all, stats)
			}
		}
	}
	// Holes in the middle, and line ends of an old system.
	for _, text := range []string{
		line + "\n" + strings.Repeat("\x00", 2*maxLine) + line + "\n" + strings.Repeat("\x00", 9) + line,
		line + "\r" + line + "\r" + line + "\r",
	} {
		if all, stats := read(t, text, Options{}); len(all) != 3 || stats.Broken != 0 || all[2].Status != 200 {
			t.Errorf("%d requests, %d broken lines of 3", len(all), stats.Broken)
		}
	}
	_, err := Read("log", strings.NewReader("\xff\xfe1\x009\x00"), Options{}, nil)
	if err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Errorf("UTF-16: %v", err)
	}
}

// Whatever the bytes are, reading ends, counts every line once, and gives no record without a time.
func FuzzRead(f *testing.F) {
	for i, seed := range []string{
		`192.0.2.7 - frank [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.0" 200 2326 "-" "\"\\"`,
		`{"ts":1431857103.5,"request":{"uri":"/","headers":{"A":["b"]}},"status":200}`,
		"time,status,\"a b\"\n2015-05-17 10:05:03,200,\"\"\"\"\n",
		`http 2015-05-17T10:05:03.186641Z app/lb/5 192.0.2.7:2817 - -1 -1 -1 460 - 34 366 "- http://h:80- -" "-" - -`,
		`10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-" 7 "r@docker" "http://10.0.0.1:80" 3ms`,
		`[2015-05-17T10:05:03.123Z] "GET / HTTP/1.1" 200 - 0 5 3 2 "192.0.2.7, 10.0.0.1" "curl" "id" "example.com" "10.0.0.1:80"`,
		`time=2015-05-17T10:05:03Z method=GET path="/a b" status=200 remote_addr=192.0.2.7`,
		`{"log":"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n","stream":"stdout","time":"2015-05-17T10:05:03Z"}`,
		`<13>1 2015-05-17T10:05:03Z h a 1 - [x y="]"] web-1  | "192.0.2.7, 10.0.0.1" 10.0.0.2 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
		`<190>May 17 10:05:03 h nginx: 192.0.2.7, 10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "192.0.2.8"`,
	} {
		f.Add([]byte(seed), uint8(i+1))
		f.Add([]byte(seed), uint8(len(formats)))
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		calls := int64(0)
		trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		names := append(FormatNames(), "")
		opts := Options{Format: names[int(format)%len(names)], Trusted: trusted[:format>>7]}
		stats, err := Read("f", strings.NewReader(string(text)), opts, func(r *Record) error {
			calls++
			if r.Time < earliest || r.Time > latest || r.Status < 0 || r.Bytes < 0 {
				t.Errorf("%+v", r)
			}
			r.Header("x-a")
			r.Field("a.b.c")
			return nil
		})
		if stats.Lines != stats.Records+stats.Broken || stats.Records != calls || int64(len(stats.First)) != min(stats.Broken, shownBroken) {
			t.Errorf("%+v after %d calls, %v", stats, calls, err)
		}
	})
}

// Whatever a format string is, it is compiled or refused, and lines are read or broken.
func FuzzLogFormat(f *testing.F) {
	line := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "a\x22\u00e9"`
	for _, format := range []string{
		`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`,
		`log_format main escape=json '{"t":"$msec",' "'a':$host$request_uri";`,
		`LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%!200,304{User-agent}i\"" combined`,
		`%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t %a:%{remote}p %U%q %^FB`,
	} {
		f.Add(format, line)
	}
	f.Fuzz(func(t *testing.T, format, line string) {
		l, err := compileFormat(format)
		if err != nil {
			return
		}
		var r Record
		names, _ := newNaming(nil)
		if (layouts{l.bound(names)}).parse([]byte(line), &r) == nil && (r.Time < earliest || r.Time > latest || r.Status < 0 || r.Bytes < 0) {
			t.Errorf("%q of %q: %+v", line, format, r)
		}
	})
}
