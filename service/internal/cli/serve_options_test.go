package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"example.com/sash"
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

func TestTheAlgorithmFromTheEnvironment(t *testing.T) {
	for _, tt := range []struct {
		env       map[string]string
		algorithm sash.Algorithm
	}{
		{nil, sash.SlidingLog},
		{map[string]string{"SASH_ALGORITHM": "gcra"}, sash.GCRA},
		{map[string]string{"SASH_ALGORITHM": "gcra", "SASH_ENVOY_COMPATIBLE": "true"}, sash.GCRA},
	} {
		opts, err := served(t, tt.env)
		if err != nil || opts.Config.Defaults.Algorithm != tt.algorithm {
			t.Errorf("%v: algorithm %v, %v", tt.env, opts.Config.Defaults.Algorithm, err)
		}
	}
}

func TestErrorsNameTheVariable(t *testing.T) {
	for name, value := range map[string]string{"SASH_LOG_FORMAT": "xml"} {
		if _, err := served(t, map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestAFlagThatSaysNoTakesPrecedence(t *testing.T) {
	opts, err := served(t, map[string]string{"RUNTIME_ROOT": "/data", "LOG_FORMAT": "json"}, "--json=false")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := opts.Log.Handler().(*slog.TextHandler); !ok {
		t.Errorf("the log is a %T", opts.Log.Handler())
	}
}

func TestCompatibleWithEnvoysService(t *testing.T) {
	opts, err := served(t, map[string]string{
		"SASH_ENVOY_COMPATIBLE": "true", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true", "LOCAL_CACHE_SIZE_IN_BYTES": "1000",
	})
	how := opts.Protocol.Counting
	if err != nil || how == nil || !how.Stop || how.Over == nil || opts.Config.Defaults.Algorithm != sash.FixedWindow || !opts.Config.Defaults.CountRefused {
		t.Errorf("%+v, %v, %v", how, opts.Config.Defaults, err)
	}
	if opts, err = served(t, map[string]string{"SASH_ENVOY_COMPATIBLE": "true"}); err != nil || opts.Protocol.Counting.Stop || opts.Protocol.Counting.Over != nil {
		t.Errorf("%+v, %v", opts.Protocol.Counting, err)
	}
	if opts, err = served(t, map[string]string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"}); err != nil || opts.Protocol.Counting != nil {
		t.Errorf("%+v, %v", opts.Protocol.Counting, err)
	}
}
