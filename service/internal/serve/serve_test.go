package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
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

func allow(t *testing.T, at Listening) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Post("http://"+at.HTTP.String()+"/v1/allow", "application/json",
		strings.NewReader(`{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],"cost":10}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func TestTheZeroOptionsServeTheExampleFromMemory(t *testing.T) {
	at, stop := start(t, Options{})
	if at.GRPC != nil || at.Admin != nil || at.ConfigName != "the built-in example" || len(at.Config.Rules()) == 0 {
		t.Errorf("listening: %+v", at)
	}
	if first, second := allow(t, at), allow(t, at); first != 200 || second != 429 {
		t.Errorf("status %d, then %d", first, second)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestInstancesOnOneRedisShareTheLimits(t *testing.T) {
	opts := Options{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Redis: redistest.Start(t).Addr(), Budget: 5 * time.Second}
	here, stopHere := start(t, opts)
	there, stopThere := start(t, opts)
	if first, second := allow(t, here), allow(t, there); first != 200 || second != 429 {
		t.Errorf("status %d, then %d of the other instance", first, second)
	}
	if err := errors.Join(stopHere(), stopThere()); err != nil {
		t.Error(err)
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

func TestAServiceWithoutAConfigurationLimitsNothing(t *testing.T) {
	opts := Options{Config: config.Source{Path: filepath.Join(t.TempDir(), "none.yaml")}}
	if err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a configuration that is missing: %v", err)
	}
	opts.StartWithoutConfig = true
	at, stop := start(t, opts)
	if len(at.Config.Rules()) != 0 {
		t.Errorf("rules: %v", at.Config.Rules())
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
