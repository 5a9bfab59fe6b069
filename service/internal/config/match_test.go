package config

import (
	"fmt"
	"strings"
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

// Which texts a pattern covers, by the README and the tests of Envoy's service: each * is any bytes, or none.
func TestWhatAWildcardCovers(t *testing.T) {
	for pattern, texts := range map[string]map[string]bool{
		"bar*b":         {"barb": true, "barab": true, "bar_b": true, "bar*b": true, "bar\nb": true, "bar": false, "bab": false, "barabc": false, "xbarb": false},
		"/api/*/action": {"/api/x/action": true, "/api//action": true, "/api/x/y/action": true, "/api/action": false, "/api/x/action/": false},
		"/a/*/b/*/c":    {"/a/x/b/y/c": true, "/a/x/y/b/z/c": true, "/a/b/b/b/c": true, "/a/b/c": false, "/a/x/b/c": false},
		"*.example.com": {".example.com": true, "a.b.example.com": true, "example.com": false},
		"*x*":           {"x": true, "axb": true, "": false, "ab": false},
		"a**b*":         {"ab": true, "axbx": true, "a": false},
		"ab*ba":         {"abba": true, "abxba": true, "aba": false, "abab": false},
		"a*b*b":         {"abb": true, "abxb": true, "ab": false},
		"*":             {"": true, "x": true},
	} {
		cfg := parsed(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: k, value: %q, rate_limit: {unit: day, requests_per_unit: 5}}\n", pattern))
		for text, want := range texts {
			rule, err := cfg.Match("d", []Entry{{"k", text}})
			if err != nil || (rule != nil) != want {
				t.Errorf("%q and %q: matched by %v, %v", pattern, text, rule, err)
			}
		}
	}
}

// A * in the key covers the whole entry, key and value joined by _, as in Envoy's service.
func TestAWildcardInTheKeyCoversKeyAndValue(t *testing.T) {
	for name, tt := range map[string]struct {
		descriptor string
		matches    []Entry
		not        []Entry
	}{
		"at the end":      {"{key: fo*}", []Entry{{"foo", "1"}, {"fo", ""}, {"fo*", "x"}, {"fo_", ""}}, []Entry{{"f", "o"}, {"go", "x"}, {"", ""}}},
		"in the middle":   {"{key: f*x}", []Entry{{"foo", "x"}, {"f", "bx"}, {"f*x", "x"}}, []Entry{{"fx", ""}, {"foo", "y"}}},
		"with a value":    {"{key: f*o, value: x}", []Entry{{"foo", "x"}, {"f_o", "x"}, {"f", "_o_x"}, {"f*o", "x"}}, []Entry{{"foo", "y"}, {"fo", "ox"}}},
		"in both":         {"{key: 'f*', value: 'a*z'}", []Entry{{"foo", "abz"}, {"f", "az"}}, []Entry{{"foo", "ab"}}},
		"nothing else":    {"{key: '*'}", []Entry{{"foo", "x"}, {"", ""}, {"*", ""}}, nil},
		"not in the key":  {"{key: a, value: b_c*}", []Entry{{"a", "b_c1"}}, []Entry{{"a_b", "c1"}}}, // joined there
		"nor in an entry": {"{key: a, value: x*}", nil, []Entry{{"a*", "x"}}},
	} {
		cfg := parsed(t, "domain: d\ndescriptors:\n- key: outer\n  descriptors:\n  - {descriptors: [{key: in, rate_limit: {unit: day, requests_per_unit: 5}}], "+tt.descriptor[1:]+"\n")
		for i, e := range append(tt.matches, tt.not...) {
			rule, err := cfg.Match("d", []Entry{{"outer", ""}, e, {"in", "1"}})
			if want := i < len(tt.matches); err != nil || (rule != nil) != want {
				t.Errorf("%s: %v of %s is matched by %v, %v", name, e, tt.descriptor, rule, err)
			}
		}
	}
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

// The engine does not see secret values, so a wildcard that covers only some of them would match none.
func TestWildcardsThatWouldLookIntoSecrets(t *testing.T) {
	for descriptors, tt := range map[string]struct{ refusal, warning string }{
		"- {key: 'auth*', limits: [5/1m]}":                                                     {},
		"- {key: '*', limits: [5/1m]}":                                                         {},
		"- {key: 'auth*', value: 'Bearer *', limits: [5/1m]}":                                  {"", `values of "authorization" are secret, and this wildcard is not compared`},
		"- {key: 'Auth*Bearer', limits: [5/1m]}":                                               {"", `values of "authorization"`},
		"- {key: 'auth*', value: 'B*', limits: [5/1m]}\n- {key: authorization, secret: false}": {},
		"- {key: 'to*', value: 'B*', limits: [5/1m]}\n- {key: token, secret: true}":            {`covers some values of "token"`, ""},
		"- {key: 'to*', secret: true, limits: [5/1m]}":                                         {"secret is for one key", ""},
	} {
		cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n"+descriptors+"\n"))
		if tt.refusal != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:3: ") || !strings.Contains(err.Error(), tt.refusal) {
				t.Errorf("%s: %v, want %q", descriptors, err, tt.refusal)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", descriptors, err)
			continue
		}
		if all := strings.Join(cfg.Warnings(), "; "); (all == "") != (tt.warning == "") || !strings.Contains(all, tt.warning) {
			t.Errorf("%s: warnings %q, want %q", descriptors, all, tt.warning)
		}
	}
	cfg := parsed(t, "domain: d\ndescriptors:\n- {key: 'x-*', limits: [5/1m]}\n")
	if got := strings.Join(cfg.Rules()[0].Secrets, " "); got != "x-access-token x-api-key x-auth-token" { // so it needs SASH_SECRET_KEYS
		t.Errorf("secrets under x-*: %s", got)
	}
}
