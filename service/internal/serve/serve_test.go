package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
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

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/envoy"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/resp"
	"example.com/sash/service/internal/rls"
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

// at names the configuration of a service.
func at(path string) envoy.Variables { return envoy.Variables{Config: config.Source{Path: path}} }

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
	servertest.Check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

var web = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}

// send sends a request with names and values of fields, and returns the status and the body of the answer.
func send(t *testing.T, method string, addr net.Addr, path, body string, header ...string) (int, string) {
	t.Helper()
	req := servertest.Must(http.NewRequestWithContext(t.Context(), method, "http://"+addr.String()+path, strings.NewReader(body)))(t)
	for i := 0; i < len(header); i += 2 {
		req.Header[header[i]] = []string{header[i+1]}
	}
	res, err := web.Do(req)
	servertest.Check(t, err)
	defer func() { _ = res.Body.Close() }()
	text := servertest.Must(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(text)
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
	opts := Options{Variables: at(filepath.Join(t.TempDir(), "none.yaml"))}
	if err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a configuration that is missing: %v", err)
	}
	opts.StartWithoutConfig = true
	if h := health(t, running(t, opts)); h.Status != "degraded" || h.Cause != "configuration" {
		t.Errorf("%+v", h)
	}
}

// A file that was cut off at the end of a line is often a smaller configuration. One that was cut off elsewhere is not used.
func TestRulesThatAReloadRemovesAreLoggedByName(t *testing.T) {
	const kept = "domain: demo\ndescriptors:\n- {key: a, limits: [1/1h]}\n"
	path := file(t, kept+"- {key: b, limits: [1/1h]}\n- {key: c, limits: [1/1h]}\n")
	var log servertest.Log
	on := running(t, Options{Variables: at(path), Admin: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil))})
	servertest.Check(t, os.WriteFile(path, []byte(kept), 0o600))
	servertest.Wait(t, "the change is not logged", func() bool {
		return strings.Contains(log.String(), `removed=2 rules="demo / b, demo / c"`)
	})
	servertest.Check(t, os.WriteFile(path, []byte(kept[:len(kept)-4]), 0o600))
	servertest.Wait(t, "a wrong change is not reported", func() bool {
		_, dumped := send(t, "GET", on.Admin, "/rlconfig", "")
		return strings.Contains(dumped, path+":") && strings.Contains(dumped, "# The last valid one is in use:\n")
	})
	has(t, log.String(), "the last valid one stays in use", path+":")
	if status, text := send(t, "POST", on.HTTP, "/v1/allow", `{"domain":"demo","entries":[{"key":"a","value":"x"}]}`); status != http.StatusOK {
		t.Errorf("after it: %d %s", status, text)
	}
}

// With a configuration of Envoy's service, a warning says what that service allows everyone and this one does not.
func TestWhoReplacesEnvoysServiceIsToldOfRights(t *testing.T) {
	const envoys, ours = "{key: a, rate_limit: {unit: day, requests_per_unit: 1}}", "{key: a, limits: [1/1d]}"
	for name, c := range map[string]struct {
		rule, access string
		compatible   bool
		told         bool
	}{
		"Envoy's": {envoys, "", false, true}, "ours": {ours, "", false, false},
		"unlimited": {"{key: a, rate_limit: {unlimited: true}}", "", false, false}, "compatible": {envoys, "", true, false},
		"rights": {envoys, file(t, "anonymous: {allow: {d: [decide, override]}}\n"), false, false},
	} {
		log := &servertest.Log{}
		opts := Options{GRPC: "127.0.0.1:0", AccessFile: c.access, Log: slog.New(slog.NewTextHandler(log, nil))}
		if opts.Variables = at(file(t, "domain: d\ndescriptors:\n- "+c.rule+"\n")); c.compatible {
			opts.Protocol.Counting = &decide.Counting{}
		}
		_, stop := start(t, opts)
		servertest.Check(t, stop())
		if told := strings.Contains(log.String(), "are PERMISSION_DENIED"); told != c.told {
			t.Errorf("%s: %v, want %v: %s", name, told, c.told, log)
		}
	}
}

// goal is the size of the heap at which the collector runs next.
func goal() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestTheCollectorWaitsForGarbage(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(900 << 20)) // as in the unit of systemd
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
		"GOMEMLIMIT": func() func() { debug.SetMemoryLimit(8 * garbage); return func() { debug.SetMemoryLimit(900 << 20) } },
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

// traced reports the functions of this repository that a decision came through, the port last, and their packages.
type traced struct {
	*memstore.Store
	way      []string
	packages map[string]bool
}

func (s *traced) Do(ctx context.Context, b *driver.Batch) error {
	var at [100]uintptr
	s.way, s.packages = nil, make(map[string]bool)
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if name, ours := strings.CutPrefix(frame.Function, "example.com/sash"); ours {
			in, _, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
			s.way, s.packages[in] = append(s.way, name), true
		}
	}
	return s.Store.Do(ctx, b)
}

// A call that nothing delays is decided by the goroutine that read it, a few frames from its port.
func TestTheWayOfARequestIsShort(t *testing.T) {
	store := &traced{Store: memstore.New(nil)}
	d := servertest.Decider(t, store, "domain: d\ndescriptors:\n- {key: k, limits: [9/1h]}\n")
	check := func(port string, frames, packages int, serve func(context.Context, net.Listener) error, ask func(net.Addr) error) {
		on := servertest.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, on) }()
		err := ask(on.Addr())
		stop()
		if err = errors.Join(err, <-ended); err != nil || len(store.way) > frames || len(store.packages) > packages {
			t.Errorf("%s: %v; %d frames of %d packages: %q", port, err, len(store.way), len(store.packages), store.way)
		}
	}
	check("HTTP", 10, 5, func(ctx context.Context, on net.Listener) error {
		return httpapi.Server{}.Serve(ctx, on, httpapi.Recover(httpapi.New(d, nil), slog.Default(), func() {}))
	}, func(addr net.Addr) error {
		send(t, http.MethodPost, addr, "/v1/allow", `{"domain":"d","entries":[{"key":"k"}]}`)
		return nil
	})
	check("Envoy", 10, 3, func(ctx context.Context, on net.Listener) error {
		return rls.Server{}.Serve(ctx, on, rls.New(d, nil))
	}, func(addr net.Addr) error {
		to, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err == nil {
			_, err = pb.NewRateLimitServiceClient(to).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}}}})
		}
		return errors.Join(err, to.Close())
	})
	check("RESP", 12, 4, func(ctx context.Context, on net.Listener) error {
		return resp.Server{}.Serve(ctx, on, resp.New(d, nil))
	}, func(addr net.Addr) error {
		client := redis.NewClient(&redis.Options{Addr: addr.String()})
		return errors.Join(client.Do(t.Context(), "SASH.ALLOW", "d", "ENTRY", "k", "v").Err(), client.Close())
	})
}
