package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.com/sash/service/internal/config"
)

// The doctor compares the leases of rules with the way to the home that they name.
func TestLeasesAreThoseOfTheirHome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	rules := "domain: d\ndescriptors:\n" +
		"- {key: a, limits: [\"100/1m\"], scope: global, home: eu}\n" +
		"- {key: b, limits: [\"100/1m\"], scope: global, home: us, lease: 2s}\n" +
		"- {key: c, limits: [\"100/1m\"], lease: 4s}\n" +
		"- {key: d, limits: [\"100/day@UTC\"], scope: global, home: us}\n"
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	leases, err := (&checkup{config: path}).leases(config.Homes{"eu": "one", "us": "two"})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]time.Duration{"one": 3 * time.Second, "two": 2 * time.Second} {
		if len(leases[url]) != 1 || leases[url][0].Longest != want {
			t.Errorf("home %s: %+v, want a lease of %v", url, leases[url], want)
		}
	}
}
