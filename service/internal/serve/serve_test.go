package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

func TestMain(m *testing.M) { servertest.NoLeak(m) }

// start runs a service until stop is called, which returns the result of Run.
func start(t *testing.T, opts Options) (at Listening, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan Listening, 1), make(chan error, 1)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.Listening = func(at Listening) error { listening <- at; return nil }
	go func() { ended <- Run(ctx, opts) }()
	select {
	case at = <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	return at, func() error { cancel(); return <-ended }
}

// running starts a service that runs until the test ends.
func running(t *testing.T, opts Options) Listening {
	t.Helper()
	at, stop := start(t, opts)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// file writes a file that a service can read.
func file(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var web = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}

// send sends a request with names and values of fields, and returns the status and the body of the answer.
func send(t *testing.T, method string, addr net.Addr, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header[header[i]] = []string{header[i+1]}
	}
	res, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// get returns what the admin port answers.
func get(t *testing.T, at Listening, path string) string {
	t.Helper()
	_, text := send(t, http.MethodGet, at.Admin, path, "")
	return text
}

// has checks that a text has lines, or parts of lines.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
}

// allow asks for all that the example has.
func allow(t *testing.T, at Listening) int {
	t.Helper()
	status, _ := send(t, http.MethodPost, at.HTTP, "/v1/allow", `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],"cost":10}`)
	return status
}

func TestTheZeroOptionsServeTheExampleFromMemory(t *testing.T) {
	at := running(t, Options{})
	if at.GRPC != nil || at.Admin != nil || at.ConfigName != "the built-in example" || len(at.Config.Rules()) == 0 {
		t.Errorf("listening: %+v", at)
	}
	if first, second := allow(t, at), allow(t, at); first != 200 || second != 429 {
		t.Errorf("status %d, then %d", first, second)
	}
	only, err := Domain(at.Config, "")
	if _, unknown := Domain(at.Config, "x"); only != "demo" || err != nil || unknown == nil || !strings.Contains(unknown.Error(), "give one of demo") {
		t.Errorf("the only domain is %q, %v; another one: %v", only, err, unknown)
	}
}

func TestAnErrorOfListeningClosesThePorts(t *testing.T) {
	enough := errors.New("enough")
	socket := "unix://" + filepath.Join(t.TempDir(), "socket")
	for range 2 {
		err := Run(t.Context(), Options{HTTP: socket, Log: slog.New(slog.DiscardHandler), Listening: func(Listening) error { return enough }})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	}
}

func TestAServiceWithoutAConfiguration(t *testing.T) {
	opts := Options{Config: config.Source{Path: filepath.Join(t.TempDir(), "none.yaml")}}
	if err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a configuration that is missing: %v", err)
	}
	opts.StartWithoutConfig = true
	if h := health(t, running(t, opts)); h.Status != "degraded" || h.Cause != "configuration" {
		t.Errorf("%+v", h)
	}
}

// A file that was cut off at the end of a line is often a smaller configuration.
func TestRulesThatAReloadRemovesAreLoggedByName(t *testing.T) {
	const kept = "domain: demo\ndescriptors:\n- {key: a, limits: [1/1h]}\n"
	path := file(t, kept+"- {key: b, limits: [1/1h]}\n- {key: c, limits: [1/1h]}\n")
	var log servertest.Log
	running(t, Options{Config: config.Source{Path: path}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := os.WriteFile(path, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	servertest.Wait(t, "the change is not logged", func() bool {
		return strings.Contains(log.String(), `removed=2 rules="demo / b, demo / c"`)
	})
}

// goal is the size of the heap at which the collector runs next.
func goal() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestTheCollectorWaitsForGarbage(t *testing.T) {
	before := goal()
	end := spareCollector()
	if more := goal() - before; more < garbage || more > 3*garbage {
		t.Errorf("the collector runs after %d bytes more, want about %d", more, 2*garbage)
	}
	end()
	if after := goal(); after > before+garbage/2 {
		t.Errorf("then it runs at %d bytes, before at %d", after, before)
	}
	for what, choose := range map[string]func() (undo func()){
		"GOGC":       func() func() { p := debug.SetGCPercent(50); return func() { debug.SetGCPercent(p) } },
		"GOMEMLIMIT": func() func() { debug.SetMemoryLimit(1 << 30); return func() { debug.SetMemoryLimit(math.MaxInt64) } },
	} {
		undo := choose()
		before := goal()
		end := spareCollector()
		if after := goal(); after > before+garbage/2 {
			t.Errorf("with %s it runs at %d bytes, before at %d", what, after, before)
		}
		end()
		undo()
	}
}

// What is decided over RESP counts as over HTTP, and is in the same metrics, also what is not decided.
func TestRESPSharesLimitsAndMetricsWithTheOtherPorts(t *testing.T) {
	at := running(t, Options{RESP: "127.0.0.1:0", Admin: "127.0.0.1:0"})
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: at.RESP.String()})
	t.Cleanup(func() { _ = client.Close() })
	ask := func() map[any]any {
		t.Helper()
		reply, err := client.Do(ctx, "SASH.ALLOW", "demo", "ENTRY", "remote_address", "192.0.2.7", "COST", 1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return reply.(map[any]any)
	}
	if reply := ask(); reply["allowed"] != int64(1) {
		t.Errorf("at first: %v", reply)
	}
	if status := allow(t, at); status != http.StatusTooManyRequests { // which wants all ten
		t.Errorf("HTTP answers %d", status)
	}
	for range 9 {
		ask()
	}
	if reply := ask(); reply["allowed"] != int64(0) {
		t.Errorf("at last: %v", reply)
	}
	if err := client.Do(ctx, "SASH.ALLOW", "demo", "ENTRY").Err(); err == nil {
		t.Error("a wrong command is answered")
	}
	if err := client.Do(ctx, "CL.THROTTLE", "key", 15, 30, 60).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
		t.Errorf("limits of a caller's own: %v", err)
	}
	has(t, get(t, at, "/metrics"),
		`sash_requests_total{outcome="allowed"} 10`, `sash_requests_total{outcome="refused"} 2`, `sash_requests_total{outcome="invalid"} 1`,
		`sash_port_requests_total{port="http"} 1`, `sash_port_requests_total{port="grpc"} 0`, `sash_port_requests_total{port="resp"} 11`,
		`sash_access_denied_total{reason="override"} 1`, `sash_connections{port="resp"} 1`)
}
