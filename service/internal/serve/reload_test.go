package serve

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

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
