package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// The same requests are made with a secret and with a value that is none, which has to be seen everywhere: a place where
// it is not seen shows nothing about the secret.
const (
	secretValue = "tkn4secretmarker7f3"
	plainValue  = "plainmarker9c1"
)

const secretLimits = `
domain: d
descriptors:
- key: token # secret by its name
  detailed_metric: true
  value_to_metric: true
  limits: [4/1h]
  candidate: {limits: [1/1h]}
  descriptors: [{key: path, limits: [4/1h], detailed_metric: true}]
- key: authorization
  limits: [2/1h]
  detailed_metric: true
- key: name
  detailed_metric: true
  value_to_metric: true
  limits: [4/1h]
  candidate: {limits: [1/1h]}
  descriptors: [{key: path, limits: [4/1h], detailed_metric: true}]
`

// evidence is what was written or answered, by where.
type evidence map[string]string

func (e evidence) add(where string, parts ...any) { e[where] += fmt.Sprintln(parts...) }

// check reports where the secret is, and where the value is not that has to be there.
func (e evidence) check(t *testing.T, seen ...string) {
	t.Helper()
	for where, text := range e {
		if at := strings.Index(text, secretValue); at >= 0 {
			t.Errorf("the secret is in %s: …%s…", where, text[max(0, at-200):min(len(text), at+100)])
		}
	}
	for _, where := range seen {
		if !strings.Contains(e[where], plainValue) {
			t.Errorf("the value that is no secret is not in %s, where it should be seen: %.2000s", where, e[where])
		}
	}
}

// request sends a request with the admin's token and returns the answer with its header.
func request(t *testing.T, method, url, body string, header ...string) string {
	t.Helper()
	res, text := send(t, method, url, body, append([]string{"Authorization", "Bearer " + adminToken}, header...)...)
	return fmt.Sprintln(res.StatusCode, res.Header, text)
}

func (p *service) exercise(t *testing.T, seen evidence, key, value string) {
	t.Helper()
	entry := fmt.Sprintf(`{"key":%q,"value":%q}`, key, value)
	one, deep := `"domain":"d","entries":[`+entry+`]`, `"domain":"d","entries":[`+entry+`,{"key":"path","value":"/x"}]`
	data := func(path, body string) string {
		answer := request(t, "POST", p.url+path, "{"+body+"}")
		seen.add("data", answer)
		return answer
	}
	admin := func(method, path, body string) {
		seen.add("admin", request(t, method, p.admin+"/admin/v1/"+path, body))
	}
	for i := range 5 {
		data("/v1/allow", fmt.Sprintf(`%s,"id":"%s %d"`, one, key, i))
	}
	data("/v1/peek", one)
	data("/v1/allow", deep)
	data("/v1/allow", one+`,"cost":1000`)
	data("/v1/allow", strings.Replace(one, `"d"`, `"nowhere"`, 1))
	data("/json", `"domain":"d","descriptors":[{"entries":[`+entry+`]}]`)
	for range 3 {
		seen.add("data", request(t, "GET", p.url+"/v1/forward-auth?domain=d&descriptor=header:authorization&descriptor=header:"+key, "",
			"Authorization", "Bearer "+secretValue, key, value, "X-Forwarded-Uri", "/x", "X-Forwarded-For", "192.0.2.7"))
	}
	for _, entries := range []string{key + "=" + value, key + "=" + value + " unknown"} {
		answer, err := p.asks(t, "d")(entries)
		seen.add("data", answer, err)
	}
	admin("GET", "subject?domain=d&entry="+key+":"+value, "")
	admin("POST", "overrides", "{"+one+`,"limits":["5/1h"],"expires":"1h"}`)
	admin("POST", "bans", "{"+deep+`,"expires":"1h","reason":"r"}`)
	data("/v1/allow", deep)
	admin("POST", "bans", "{"+strings.Replace(one, `"key":"`, `"key":"wrong`, 1)+`,"expires":"1h"}`)
	admin("POST", "reset", "{"+one+"}")
	_, token, found := strings.Cut(data("/v1/reserve", one), `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	first, _, _ := strings.Cut(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil || !found {
		t.Fatal("no token", err)
	}
	seen.add("token", string(payload))
	data("/v1/settle", `"token":"`+token+`","used":0`)
	data("/v1/allow", one)
}

// A secret that clients and operators send stays in the request: it is not in Redis, in what crosses the way there, in
// logs, metrics, traces, answers or tokens.
func TestASecretIsNowhere(t *testing.T) {
	t.Parallel()
	file := tempFile(t, "limits.yaml", secretLimits)
	redis := redistest.Start(t)
	seen := evidence{}
	monitor := servertest.Must(net.Dial("tcp", redis.Addr()))(t)
	defer func() { _ = monitor.Close() }()
	_, _ = monitor.Write([]byte("MONITOR\r\n"))
	statsd := servertest.Must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer func() { _ = statsd.Close() }()
	host, port, _ := net.SplitHostPort(statsd.LocalAddr().String())
	collector, spans := collect(t)
	p := spawn(t, []string{
		"SASH_SECRET_KEYS=" + strings.Repeat("k", 32), "SASH_ADMIN_TOKEN=" + adminToken,
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_BSP_SCHEDULE_DELAY=20",
		"USE_STATSD=true", "STATSD_PROTOCOL=udp", "STATSD_HOST=" + host, "STATSD_PORT=" + port,
	}, "--config", file, "--redis", "redis://"+redis.Addr(), "--show-keys", "--log-refusals", "--log-level", "debug")
	p.exercise(t, seen, "token", secretValue)
	p.exercise(t, seen, "name", plainValue)
	for _, path := range []string{"stats", "metrics", "rlconfig", "admin/v1/config", "admin/v1/bans", "admin/v1/overrides", "admin/v1/state", "dashboard"} {
		seen.add(path, request(t, "GET", p.admin+"/"+path, ""))
	}
	keys, _ := redis.Must(t, "KEYS", "*").([]any)
	for _, key := range keys {
		seen.add("redis", key, redis.Must(t, "DUMP", key.(string)))
	}
	seen.add("exceptions", redis.Must(t, "GET", "sash:exceptions"))
	_ = redis.Must(t, "ECHO", "the end of what was monitored")
	seen.add("monitor", readUntil(t, monitor, "the end of what was monitored"))
	seen.add("log", p.stopped(t))
	seen.add("spans", spans)
	seen.add("statsd", readUntil(t, statsd, plainValue))
	seen.check(t, "token", "admin", "stats", "metrics", "admin/v1/state", "admin/v1/bans", "admin/v1/overrides", "redis", "exceptions",
		"monitor", "spans", "statsd", "log")
	if !strings.Contains(seen["redis"], "hmac-") {
		t.Errorf("Redis has no name of a secret: %s", seen["redis"])
	}
}

// collect starts a collector of OpenTelemetry, which ends with the test, and returns its URL and what it receives, in which
// texts stand as they are.
func collect(t *testing.T) (url string, received *servertest.Log) {
	t.Helper()
	received = &servertest.Log{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(received, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf") // of an empty answer
	}))
	t.Cleanup(web.Close)
	return web.URL, received
}

// readUntil returns what comes over a connection, up to a text.
func readUntil(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var all strings.Builder
	buffer := make([]byte, 1<<16)
	for !strings.Contains(all.String(), text) {
		n, err := conn.Read(buffer)
		if err != nil {
			t.Errorf("%q did not come: %v", text, err)
			break
		}
		all.Write(buffer[:n])
	}
	return all.String()
}
