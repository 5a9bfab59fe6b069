package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/serve"
)

// served returns the options of sash serve in an environment, with flags.
func served(t *testing.T, env map[string]string, flags ...string) (serve.Options, error) {
	t.Helper()
	a := &app{env: func(name string) string { return env[name] }, err: &bytes.Buffer{}}
	s, cmd := &serving{}, &cobra.Command{}
	s.flags(cmd)
	if err := cmd.Flags().Parse(flags); err != nil {
		t.Fatal(err)
	}
	return a.options(s, false, cmd.Flags().Changed)
}

func TestFlagsTakePrecedence(t *testing.T) {
	opts, err := served(t, map[string]string{"RUNTIME_ROOT": "/data", "LOG_FORMAT": "json", "SASH_ENVOY_COMPATIBLE": "true"},
		"--json=false", "--config", "a.yaml", "--addr", ":1")
	if err != nil {
		t.Fatal(err)
	}
	defaults := config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true}
	if opts.HTTP != ":1" || opts.GRPC != "0.0.0.0:8081" || opts.Protocol.Counting == nil ||
		opts.Config != (config.Source{Path: "a.yaml", Defaults: defaults}) {
		t.Errorf("%+v", opts)
	}
	if _, ok := opts.Log.Handler().(*slog.TextHandler); !ok {
		t.Errorf("the log is a %T", opts.Log.Handler())
	}
	if _, err := served(t, map[string]string{"SASH_LOG_FORMAT": "xml"}); err == nil || !strings.Contains(err.Error(), "SASH_LOG_FORMAT") {
		t.Errorf("a wrong format: %v", err)
	}
}
