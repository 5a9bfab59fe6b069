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
func TestRulesThatAReloadRemovesAreLoggedByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	rewrite(t, path, six())
	var log servertest.Log
	running(t, Options{Config: config.Source{Path: path}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	cut, _, _ := strings.Cut(six(), "- key: k1")
	rewrite(t, path, cut)
	servertest.Wait(t, "the change is not logged", func() bool {
		return strings.Contains(log.String(), `removed=5 rules="demo / k1, demo / k2, demo / k3, demo / k4, demo / k5"`)
	})
}
