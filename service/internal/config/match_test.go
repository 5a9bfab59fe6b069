package config

import (
	"testing"
	"time"

	"example.com/sash"
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

func TestWhatIsChargedAndCounted(t *testing.T) {
	cfg := parsed(t, envoyText)
	for name, tt := range map[string]struct {
		entries []Entry
		charged []Entry
		metric  string
	}{
		"a wildcard counts every value":      {[]Entry{{"path", "/api/v1"}}, []Entry{{"path", "/api/v1"}}, "d.path_/api/*"},
		"a shared one counts all together":   {[]Entry{{"files", "files/a"}, {"user", "1"}}, []Entry{{"files", "files/*"}, {"user", "1"}}, "d.files_files/*.user"},
		"a bare key keeps values out":        {[]Entry{{"path", "/x"}}, []Entry{{"path", "/x"}}, "d.path"},
		"value_to_metric shows that value":   {[]Entry{{"route", "a"}, {"method", "GET"}}, []Entry{{"route", "a"}, {"method", "GET"}}, "d.route_a.method"},
		"detailed_metric shows every value":  {[]Entry{{"tenant", "t"}, {"user", "u"}}, []Entry{{"tenant", "t"}, {"user", "u"}}, "d.tenant_t.user_u"},
		"an exact value is part of the name": {[]Entry{{"path", "/api/v2/health"}}, []Entry{{"path", "/api/v2/health"}}, "d.path_/api/v2/health"},
	} {
		found, err := cfg.Find("d", tt.entries)
		if err != nil || found.Key != Key("d", tt.charged) || found.Metric != tt.metric {
			t.Errorf("%s: %q, %q, %v; want %q, %q", name, found.Key, found.Metric, err, Key("d", tt.charged), tt.metric)
		}
	}
}

func TestLargeLimitsShareEntries(t *testing.T) {
	for text, want := range map[string]sash.Options{
		"100000/1m":              {},
		"100001/1m":              {Algorithm: sash.SlidingBuckets, Resolution: 60 * time.Millisecond},
		"4294967295/365d":        {Algorithm: sash.SlidingBuckets, Resolution: 31536 * time.Second},
		"1000000/1s":             {Algorithm: sash.SlidingBuckets, Resolution: time.Millisecond},
		"1000000/1ms":            {Algorithm: sash.SlidingBuckets, Resolution: time.Microsecond},
		"1000000/day@UTC":        {Algorithm: sash.SlidingBuckets, Resolution: 93600 * time.Millisecond},
		"1000000/1s, 90000000/d": {Algorithm: sash.SlidingBuckets, Resolution: 1729 * time.Millisecond},
	} {
		cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- key: a\n  limits: ["+text+"]\n"))
		if text == "1000000/1s, 90000000/d" {
			if err == nil {
				t.Errorf("%s: a resolution of more than the shorter window was taken", text)
			}
			continue
		}
		if err != nil || cfg.Rules()[0].Options != want {
			t.Errorf("%s: %+v, %v; want %+v", text, cfg.Rules(), err, want)
		}
	}
}

func parsed(t testing.TB, text string) *Config {
	t.Helper()
	v, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
