package config

import (
	"strings"
	"testing"
)

const envoyText = `
domain: d
descriptors:
  - key: path
    value: /api/*
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /api/v2/*
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /api/v2/health
    rate_limit: {unlimited: true}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: files
    value: files/*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 5}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        rate_limit: {unit: minute, requests_per_unit: 6}
  - key: tenant
    descriptors:
      - key: user
        detailed_metric: true
        rate_limit: {unit: minute, requests_per_unit: 7}
  - key: banned
    rate_limit: {unit: minute, requests_per_unit: 0}
`

// Match returns the rule for a request, or nil if nothing limits it.
func (c *Config) Match(domain string, entries []Entry) (*Rule, error) {
	found, err := c.Find(domain, entries)
	return found.Rule, err
}

func parsed(t testing.TB, text string) *Config {
	t.Helper()
	v, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestExceptionsReachWhatAWildcardInTheKeyCovers(t *testing.T) {
	cfg := parsed(t, "domain: d\ndescriptors:\n- key: tenant*\n  descriptors:\n  - {key: user, limits: [5/1m]}\n")
	for _, entries := range [][]Entry{{{"tenant", "1"}}, {{"tenant_id", "1"}, {"user", "2"}}} {
		if err := cfg.Reach("d", entries); err != nil {
			t.Errorf("%v: %v", entries, err)
		}
	}
	if err := cfg.Reach("d", []Entry{{"user", "1"}}); err == nil || !strings.Contains(err.Error(), "the keys are: tenant*") {
		t.Errorf("a key that nothing covers: %v", err)
	}
}
