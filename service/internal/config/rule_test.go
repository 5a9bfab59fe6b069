package config

import (
	"errors"
	"strings"
	"testing"

	"example.com/sash"
)

// withRule returns a configuration of one rule, whose body begins on line 4.
func withRule(body string) (*Config, error) {
	return Parse(Defaults{}, false, File{"f.yaml", []byte("domain: d\ndescriptors:\n- key: k\n  " + strings.ReplaceAll(body, "\n", "\n  ") + "\n")})
}

func ruleOf(body string) (*Rule, error) {
	cfg, err := withRule(body)
	if err != nil {
		return nil, err
	}
	return cfg.Rules()[0], nil
}

func TestARuleIsDescribedAsItWasWritten(t *testing.T) {
	for body, want := range map[string]string{
		"rate_limit: {unit: day, requests_per_unit: 010}":                                                      "8/1d by sliding-log",
		"limits: [5/1m]\ncost: 1":                                                                              "5/1m by sliding-log",
		"limits: [5/1m]\non_unavailable: {1: open, 20: local, else: closed}":                                   "5/1m by sliding-log, on_unavailable {1: open, 20: local, else: closed}",
		"limits: [5/1m]\non_unavailable: local\nguard: true":                                                   "5/1m by sliding-log, on_unavailable local, guard",
		"limits: [10/1m]\ncandidate: {limits: [5/1m]}":                                                         "10/1m by sliding-log, candidate 5/1m by sliding-log, not enforced",
		"limits: [10/1m]\ncandidate: {limits: [5/1m, 50/1h], enforce_percent: 10}":                             "10/1m by sliding-log, candidate 5/1m and 50/1h by sliding-log, enforced for 10%",
		"limits: [10/1m]\ncandidate: {limits: [5/1m], enforce_percent: 0.5%}":                                  "10/1m by sliding-log, candidate 5/1m by sliding-log, enforced for 0.5%",
		"limits: [10/1m]\nalgorithm: fixed-window\ncandidate: {limits: [10/1m], algorithm: sliding-log}":       "10/1m by fixed-window, candidate 10/1m by sliding-log, not enforced",
		"rate_limit: {unit: minute, requests_per_unit: 10}\ncandidate: {limits: [5/1m], enforce_percent: 100}": "10/1m by sliding-log, candidate 5/1m by sliding-log, enforced for 100%",
		"limits: [10/1m]\nalgorithm: sliding-buckets\nresolution: 1s\ncandidate: {limits: [5/1m]}":             "10/1m by sliding-buckets of 1s, candidate 5/1m by sliding-buckets of 1s, not enforced",
		"limits: [10/1m]\ncount_refused: true\ncandidate: {limits: [5/1m]}":                                    "10/1m by sliding-log, count_refused, candidate 5/1m by sliding-log, not enforced",
		"limits: [5/1m]\nblock: 10m":                                                                           "5/1m by sliding-log, block 10m after 5 refusals in 1m",
		"limits: [5/1m]\nblock: {for: 720h, refusals: 1, window: 24h}":                                         "5/1m by sliding-log, block 720h after 1 refusal in 24h",
		"limits: [5/1m]\nalgorithm: gcra\nshadow_mode: true\nblock: {for: 90s, refusals: 100}":                 "5/1m by gcra, block 1m30s after 100 refusals in 1m, shadow_mode",
		"limits: [5/1m]\nblock: 10m\ncandidate: {limits: [3/1m]}":                                              "5/1m by sliding-log, block 10m after 5 refusals in 1m, candidate 3/1m by sliding-log, not enforced",
		"limits: [100/1m]\nscope: region":                                                                      "100/1m by sliding-log",
		"limits: [100/1m]\nscope: global":                                                                      "100/1m by sliding-log, scope global, lease 3s",
		"limits: [100/1h, 10/40s]\nscope: global":                                                              "100/1h and 10/40s by sliding-log, scope global, lease 2s",
		"limits: [100/1s]\nscope: global":                                                                      "100/1s by sliding-log, scope global, lease 250ms",
		"limits: [100/24h]\nscope: global":                                                                     "100/24h by sliding-log, scope global, lease 1m",
		"limits: [100/1m]\nscope: global\nlease: 30s":                                                          "100/1m by sliding-log, scope global, lease 30s",
		"rate_limit: {unit: minute, requests_per_unit: 9}\nscope: global":                                      "9/1m by sliding-log, scope global, lease 3s",
		"limits: [10/1m]\nscope: global\non_unavailable: local\nregions: 2":                                    "10/1m by sliding-log, scope global, lease 3s, own share 10% of 2 regions, on_unavailable local",
		"limits: [10/1m]\nscope: global\non_unavailable: local\nregions: 3\nown_share: 33%":                    "10/1m by sliding-log, scope global, lease 3s, own share 33% of 3 regions, on_unavailable local",
		"limits: [9/1m]\non_unavailable: open":                                                                 "9/1m by sliding-log, on_unavailable open",
		"limits: [9/1m]\non_unavailable: closed":                                                               "9/1m by sliding-log, on_unavailable closed",
		"limits: [9/1m]\non_unavailable: {1: open, 2_0: local}":                                                "9/1m by sliding-log, on_unavailable {1: open, 20: local}",
		"limits: [9/1m]\non_unavailable: {else: open}":                                                         "9/1m by sliding-log, on_unavailable open",
		"limits: [4294967295/365d]":                                                                            "4294967295/365d by sliding-log",
		"limits: [2000000/1m, 1000000000/30d]":                                                                 "2000000/1m and 1000000000/30d by sliding-log",
		"limits: [1000000/day@UTC]\nalgorithm: sliding-buckets":                                                "1000000/day@UTC by sliding-buckets of 1m33.6s",
	} {
		rule, err := ruleOf(body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := rule.Describe(); got != want || rule.Line != "f.yaml:3" {
			t.Errorf("%s\nis %q on %s, want %q", body, got, rule.Line, want)
		}
		if rule.Candidate == nil {
			continue
		}
		if rule.Candidate.Options.CountRefused != rule.Options.CountRefused || rule.Candidate.Options.Block != rule.Options.Block {
			t.Errorf("%s: the candidate counts refused calls otherwise than the rule", body)
		}
		if _, err := sash.NewPolicy(&rule.Candidate.Options, rule.Candidate.Limits...); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Which subjects are enforced must not change with a version of Sash: instances of two versions would disagree. The
// numbers are the first four bytes of each key's SHA-256, by sha256sum.
func TestWhoIsEnforcedStaysSo(t *testing.T) {
	for key, first := range map[string]uint32{
		"web:remote_address:192.0.2.7": 0xb3d74426, "web:remote_address:192.0.2.8": 0xadc806ec, "demo:user:42": 0x9634b3ed,
	} {
		share := float64(first) / (1 << 32) * 100
		below, above := Candidate{Percent: share - 0.001}, Candidate{Percent: share + 0.001}
		if below.Enforced(key) || !above.Enforced(key) {
			t.Errorf("%s is not at %.4f%%", key, share)
		}
	}
}

// A file without the keys that only Sash has is read by Envoy's service too, so its algorithm can be set outside of it.
func TestDefaultsHoldWhereARuleNamesNone(t *testing.T) {
	const text = `
domain: d
descriptors:
- {key: none, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: many, rate_limit: {unit: hour, requests_per_unit: 1000000}}
- {key: own, limits: [5/1m], algorithm: sliding-log}
- {key: step, limits: [500/1m], algorithm: sliding-buckets, resolution: 1s}
- key: above
  limits: [10/1h]
  candidate: {limits: [5/1h]}
- {key: blocks, limits: [5/1m], block: 1m}
`
	cfg, err := Parse(Defaults{Algorithm: sash.FixedWindow, CountRefused: true}, false, File{"x.yaml", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sash.Options{
		"none":   {Algorithm: sash.FixedWindow, CountRefused: true},
		"many":   {Algorithm: sash.FixedWindow, CountRefused: true},
		"own":    {Algorithm: sash.SlidingLog, CountRefused: true},
		"step":   {Algorithm: sash.SlidingBuckets, CountRefused: true},
		"above":  {Algorithm: sash.FixedWindow, CountRefused: true},
		"blocks": {Algorithm: sash.FixedWindow},
	}
	for _, rule := range cfg.Rules() {
		if got := rule.Options; got.Algorithm != want[rule.Label].Algorithm || got.CountRefused != want[rule.Label].CountRefused {
			t.Errorf("%s: %v, count_refused %v", rule.Label, got.Algorithm, got.CountRefused)
		}
		if c := rule.Candidate; c != nil && (c.Options.Algorithm != sash.FixedWindow) {
			t.Errorf("the candidate of %s: %v", rule.Label, c.Options.Algorithm)
		}
	}
	if cfg.Defaults().Algorithm != sash.FixedWindow {
		t.Error("the configuration does not have its defaults")
	}
}

func TestAWrongRuleSaysWhatToWrite(t *testing.T) {
	for body, want := range map[string]string{
		"rate_limit: {unit: day, requests_per_unit: \"10\"}":     "f.yaml:4: requests_per_unit \"10\" is a string: remove the quotes",
		"rate_limit: {unit: day, requests_per_unit: 4294967296}": "requests_per_unit is more than 4294967295: give limits, such as limits: [\"4294967296/1d\"]",
		"rate_limit: {unit: day, requests_per_unit: 1.5}":        "must be a whole number",
		"rate_limit: {unit: day, requests_per_unit: [1]}":        "must be a whole number",
		"value: 1e3":                  "f.yaml:4: value is the number 1e3: put it into quotes",
		"candidate: {limits: [5/1m]}": "f.yaml:4: algorithm, resolution, cost, block, max_wait, scope, lease, on_unavailable, refund_within, tokens and candidate need rate_limit or limits",
		"limits: [10/1m]\ntokens: {}": "f.yaml:5: tokens: the format \"\" must be openai, anthropic or gemini",
		"limits: [10/1m]\ntokens: {format: openai}\ncount_refused: true":                     "f.yaml:5: tokens beside count_refused",
		"limits: [10/1m]\ntokens: {format: openai, default_max: 0}":                          "default_max",
		"limits: [10/1m]\ntokens: {format: openai, elsewhere: -1}":                           "elsewhere",
		"limits: [10/1m]\ntokens: {format: openai, count_errors: 3}":                         "count_errors",
		"limits: [10/1m]\ncandidate: {limits: [5/1m]}\nshadow_mode: true":                    "f.yaml:5: candidate beside shadow_mode",
		"limits: [10/1m]\ncandidate: {enforce_percent: 5}":                                   "f.yaml:5: candidate needs limits",
		"limits: [10/1m]\ncandidate: 5/1m":                                                   "f.yaml:5: candidate must be a mapping",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: 101":              "enforce_percent \"101\" must be a number from 0 to 100",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: some":             "enforce_percent \"some\"",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: NaN":              "enforce_percent \"NaN\"",
		"limits: [10/1m]\ncandidate:\n  limits: [5 a minute]":                                "f.yaml:6: ",
		"limits: [10/1m]\ncost: 8\ncandidate:\n  limits: [5/1m]":                             "f.yaml:7: a cost of 8 units can never fit into 5/1m",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  percent: 3":                        "unknown key \"percent\": candidate can have algorithm, enforce_percent, limits, resolution",
		"rate_limit: {unit: minute, requests_per_unit: 0}\ncandidate: {limits: [5/1m]}":      "f.yaml:5: candidate beside a limit that refuses everything",
		"limits: [5/1m]\nblock: 10":                                                          `f.yaml:5: block "10" must be a duration of up to 720h, such as 10m, or {refusals: 5, window: 1m, for: 10m}`,
		"limits: [5/1m]\nblock: null":                                                        `block "" must be`,
		"limits: [5/1m]\nblock: 0s":                                                          `block "0s" must be`,
		"limits: [5/1m]\nblock: 721h":                                                        "up to 720h",
		"limits: [5/1m]\nblock: [10m]":                                                       "block must be how long",
		"limits: [5/1m]\nblock: {}":                                                          "block needs for, how long a subject stays out: {refusals: 5, window: 1m, for: 10m}",
		"limits: [5/1m]\nblock: {refusals: 3, window: 2m}":                                   "{refusals: 3, window: 2m, for: 10m}",
		"limits: [5/1m]\nblock: {for: 1m, refusals: 0}":                                      "refusals must be a whole number of at least 1",
		"limits: [5/1m]\nblock: {for: 1m, refusals: 101}":                                    "refusals is 1 to 100",
		"limits: [5/1m]\nblock: {for: 1m, window: 25h}":                                      `window "25h" must be a duration of up to 24h, such as 1m`,
		"limits: [5/1m]\nblock: {for: 1m, windows: 1h}":                                      `unknown key "windows": block can have for, refusals, window`,
		"limits: [5/1m]\ncandidate: {limits: [1/1m], block: 1m}":                             `unknown key "block": candidate can have`,
		"limits: [9/1m]\nscope: world":                                                       `f.yaml:5: scope "world" must be global`,
		"limits: [9/1m]\nlease: 10us":                                                        `f.yaml:5: lease "10µs" must be at least 1ms`,
		"limits: [9/1h]\nlease: 61s":                                                         `f.yaml:5: lease "61s" must be`,
		"limits: [9/1m, 3/10s]\nlease: 6s":                                                   "f.yaml:5: a lease of 6s is longer than half of the window of 10s",
		"limits: [9/1m]\nalgorithm: gcra\nlease: 1s":                                         "f.yaml:6: units of this rule cannot be leased",
		"limits: [9/1m]\ncount_refused: true\nlease: 1s":                                     "f.yaml:6: units of this rule cannot be leased",
		"limits: [9/400d]\nlease: 1s":                                                        "f.yaml:5: windows are longer by the lease of 1s",
		"scope: global":                                                                      "f.yaml:4: algorithm, resolution, cost, block, max_wait, scope, lease",
		"limits: [9/1m]\nmax_wait: 25h":                                                      `f.yaml:5: max_wait "25h" must be a duration of up to 24h, such as 30s`,
		"rate_limit: {unit: minute, requests_per_unit: 0}\nscope: global":                    "f.yaml:5: scope and lease beside a limit that refuses everything",
		"limits: [9/1m]\nscope: global\non_unavailable: {1: open, else: local}":              "f.yaml:6: on_unavailable is local for some costs beside scope: global",
		"limits: [900/day@UTC]\nscope: global\non_unavailable: local":                        "f.yaml:6: on_unavailable is local beside scope: global, and a region has no own share of limits that cannot be leased",
		"limits: [900/1m, 9/1s]\nscope: global\non_unavailable: local\nregions: 2":           "f.yaml:7: 10 % of 9/1s is no unit",
		"limits: [900/1m]\nscope: global\non_unavailable: local\nregions: 4\nown_share: 25%": "f.yaml:8: 4 regions with 25 % of each limit each leave the home nothing",
		"limits: [900/1m]\nscope: global\non_unavailable: local":                             "give their number, such as regions: 3",
		"limits: [900/1m]\nscope: global\non_unavailable: local\nregions: many":              "f.yaml:7: regions \"many\" must be",
		"limits: [900/1m]\nscope: global\non_unavailable: local\nregions: 2\nown_share: 0.1": "f.yaml:8: own_share",
		"limits: [900/1m]\nscope: global\nregions: 2":                                        "f.yaml:6: regions and own_share are for the own share",
		"limits: [9/1m]\nrefund_within: 1m":                                                  "f.yaml:5: a refund after refund_within, 1m, would free other charges",
		"limits: [9/1m, 9/day@UTC]\nrefund_within: 1s":                                       "it needs a longer window",
		"limits: [9/1m]\ncount_refused: true\nrefund_within: 1s":                             "and no count_refused",
		"limits: [9/1m]\nalgorithm: fixed-window\nrefund_within: 1s":                         "algorithm sliding-log",
	} {
		if _, err := ruleOf(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nis %v, want %s", body, err, want)
		}
	}
}

// A limit that cannot be leased still holds over all regions. Each call then costs a trip, and a warning says so.
func TestAGlobalRuleThatCannotBeLeased(t *testing.T) {
	for _, keys := range []string{
		"limits: [100/day@UTC]", "limits: [100/1m]\nalgorithm: fixed-window", "limits: [100/1m]\ncount_refused: true", "limits: [100/1m]\nblock: 1m",
		"limits: [100/1m]\ncandidate: {limits: [50/1m], algorithm: gcra}",
		"limits: [100/400d]", // the longest window
	} {
		cfg, err := withRule(keys + "\nscope: global")
		if err != nil || cfg.Rules()[0].Place != (Place{Global: true}) || !strings.Contains(strings.Join(cfg.Warnings(), "\n"), "takes a trip to the home") {
			t.Errorf("%s: %+v, %v", keys, cfg, err)
		}
		if _, err := withRule(keys + "\nscope: global\nlease: 5s"); err == nil {
			t.Errorf("%s: its lease is accepted", keys)
		}
	}
}

func TestWhatIsAcceptedWithAWarning(t *testing.T) {
	for body, want := range map[string]string{
		"rate_limit: {unit: day}":                       "f.yaml:4: requests_per_unit is missing: this refuses everything, as 0 does",
		"rate_limit: {unit: day, requests_per_unit: ~}": "f.yaml:4: requests_per_unit is missing",
		"rate_limit:": "f.yaml:4: rate_limit is empty: this descriptor limits nothing",
		"rate_limit: {unlimited: true, unit: fortnight}": "f.yaml:4: unlimited: the unit \"fortnight\" has no effect",
		"metadata: {service: {[a]: x}}":                  "f.yaml:4: metadata is not sent to Envoy",
		"metadata:":                                      "",
		"rate_limit: {unit: day, requests_per_unit: 0, replaces: }\ndescriptors:": "",
		// A lease of too few units does nothing.
		"limits: [63/1m]\nscope: global\nlease: 1s": "f.yaml:6: a limit of 63 units is too small for leases, which need 64: the home decides each call",
		"limits: [100/1m, 15/1s]\nlease: 100ms":     "f.yaml:5: a limit of 15 units is too small for leases, which need 16: Redis decides each call",
		"limits: [64/1m]\nscope: global\nlease: 1s": "",
		"limits: [10/1m]\nscope: global":            "", // nobody has asked for one
		// The engine does not see secret values, so a wildcard that covers only some of them would match none.
		"descriptors:\n- key: 'auth*'":                      "",
		"descriptors:\n- key: '*'":                          "",
		"descriptors:\n- {key: 'auth*', value: 'Bearer *'}": `f.yaml:5: values of "authorization" are secret, and this wildcard is not compared`,
		"descriptors:\n- key: 'Auth*Bearer'":                `f.yaml:5: values of "authorization"`,
		"descriptors:\n- {key: 'authori*', value: 'B*'}\n- {key: authorization, secret: false}": "",
	} {
		cfg, err := withRule(body)
		if err != nil {
			t.Fatal(body, err)
		}
		if got := strings.Join(cfg.Warnings(), "; "); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: warnings %q, want %q", body, got, want)
		}
	}
}

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

func parsed(t testing.TB, text string) *Config {
	t.Helper()
	v, err := Parse(Defaults{}, false, File{"x.yaml", []byte(text)})
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
	for says, entries := range map[string][]Entry{
		`the key "user"; the keys are: tenant*`: {{"user", "1"}}, `the key "role"; the keys are: user`: {{"tenant", "1"}, {"role", "2"}},
	} {
		if err := cfg.Reach("d", entries); !errors.Is(err, ErrNoDescriptor) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %s", entries, err, says)
		}
	}
}
