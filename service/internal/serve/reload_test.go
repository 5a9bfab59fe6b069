package serve

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

// six is a configuration of six rules, each with one unit a day.
func six() string {
	var b strings.Builder
	b.WriteString("domain: demo\ndescriptors:\n")
	for i := range 6 {
		fmt.Fprintf(&b, "- key: k%d\n  rate_limit: {unit: day, requests_per_unit: 1}\n", i)
	}
	return b.String()
}

// rewrite replaces a file at once.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A file that was cut off at the end of a line is often a smaller configuration.
func TestRulesThatAReloadRemoves(t *testing.T) {
	cut, _, _ := strings.Cut(six(), "- key: k1")
	two, five := 2, 5
	for name, tt := range map[string]struct {
		most *int
		last int    // the status of a second request under the last rule, after the reload
		says string // the log
	}{
		"are logged by name":           {nil, 200, `removed=5 rules="demo / k1, demo / k2, demo / k3, demo / k4, demo / k5"`},
		"can be kept by a setting":     {&two, 429, "5 rules are missing, and a reload may remove 2 (--max-rules-removed): put them back, or restart the service without them: demo / k1, demo / k2"},
		"are as many as a setting has": {&five, 200, "removed=5"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			rewrite(t, path, six())
			var log servertest.Log
			at := running(t, Options{Config: config.Source{Path: path}, MaxRulesRemoved: tt.most, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if status := ask(t, at, "demo", "k5", "x", ""); status != 200 {
				t.Fatalf("the first request: %d", status)
			}
			rewrite(t, path, cut)
			servertest.Wait(t, "the change is not logged", func() bool { return strings.Contains(log.String(), tt.says) })
			if status := ask(t, at, "demo", "k5", "x", ""); status != tt.last {
				t.Errorf("status %d after the reload, want %d", status, tt.last)
			}
		})
	}
}
