package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What serve refuses check refuses in the same environment, and warns of in one that does not say.
func TestCheckAppliesTheRulesOfServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("domain: d\ndescriptors:\n- {key: api_key, secret: true, limits: [5/1m]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const redis, keys = "redis://127.0.0.1:1", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	for _, c := range []struct {
		env  map[string]string
		code int
		says string
	}{
		{nil, 0, "warning: on Redis, d / api_key"},
		{map[string]string{redisVariable: redis}, 2, "set SASH_SECRET_KEYS"},
		{map[string]string{redisVariable: redis, secretKeysVariable: keys}, 0, "secret api_key"},
		{map[string]string{secretKeysVariable: "short"}, 2, secretKeysVariable},
		{map[string]string{"SASH_ALGORITHM": "fixed-window"}, 0, "by fixed-window"},
		{map[string]string{"SASH_ALGORITHM": "none"}, 2, "SASH_ALGORITHM"},
	} {
		var out strings.Builder
		code := Run(t.Context(), []string{"config", "check", file}, nil, &out, &out, func(name string) string { return c.env[name] })
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: %d, %s", c.env, code, out.String())
		}
	}
}
