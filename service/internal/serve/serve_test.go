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
	"strings"
	"testing"
	"time"

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
