package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/serve"
)

// The help of sash serve is read as a whole.
func TestHelpOfServe(t *testing.T) {
	var out strings.Builder
	if code := Run(t.Context(), []string{"serve", "--help"}, nil, &out, &out, func(string) string { return "" }); code != 0 {
		t.Fatal(code, out.String())
	}
	if n := len(strings.Fields(out.String())); n > 900 {
		t.Errorf("it has %d words", n)
	}
	if n := strings.Count(out.String(), "\n      --"); n > 30 {
		t.Errorf("it has %d flags", n)
	}
}

func TestHelpFitsIntoAHundredColumns(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > helpColumns {
				t.Errorf("%s has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
}

func TestWhatMayBeAPasswordIsNotShown(t *testing.T) {
	const url = `redis://:se"cret@127.0.0.1:1`
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"doctor", url}, "give the address with --redis"},
		{[]string{"doctor", "secret"}, "give the address with --redis"},
		{[]string{"verify", url}, "give the address with --redis"},
		{[]string{"verify", "--json", url}, "give the address with --redis"},
		{[]string{url}, "not shown"},
		{[]string{"user:se\"cret@127.0.0.1:1"}, "not shown"},
		{[]string{"serve", url}, "not shown"},
		{[]string{"doctor", "--budget", url}, "not shown"},
		{[]string{"doctor", "--budget=" + url}, "not shown"},
		{[]string{"allow", "--limit", url, "k"}, "not shown"},
	} {
		var out, err strings.Builder
		code := Run(t.Context(), c.args, nil, &out, &err, func(string) string { return "" })
		all := out.String() + err.String()
		if code != exitError || !strings.Contains(all, c.say) || strings.Contains(all, "cret") {
			t.Errorf("%q: exit %d, %s", c.args, code, all)
		}
	}
	var out, err strings.Builder
	Run(t.Context(), []string{"allow", "--limit", "x/day@Mars/Base", "k"}, nil, &out, &err, func(string) string { return "" })
	if !strings.Contains(err.String(), "x/day@Mars/Base") {
		t.Errorf("a limit with a zone is not shown: %s", err.String())
	}
}

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
	defaults := config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true, HeadersOnly: true}
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

// TestAnInterruptedBookingIsGivenBack states that a command that is interrupted while Redis decides ends when it has given
// back what Redis booked.
func TestAnInterruptedBookingIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := late{memstore.New(nil), make(chan struct{})}
		l, err := sash.New(store, nil, sash.PerHour(1))
		if err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- new(app).wait(ctx, &subject{cost: 1, timeout: 2 * time.Second}, l, "k", time.Minute) }()
		synctest.Wait()
		interrupt()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the command ends while Redis decides")
		}
		close(store.decides)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%d of 1 are left: %v", res.Remaining, err)
		}
	})
}

// late is a store that decides when it is let.
type late struct {
	*memstore.Store
	decides chan struct{}
}

func (s late) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	<-s.decides
	return s.Store.Decide(ctx, req)
}
