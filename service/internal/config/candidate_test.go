package config

import (
	"strings"
	"testing"

	"example.com/sash"
)

func ruleOf(body string) (*Rule, error) {
	cfg, err := Parse("f.yaml", []byte("domain: d\ndescriptors:\n- key: k\n  "+strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n  ")+"\n"))
	if err != nil {
		return nil, err
	}
	return cfg.Rules()[0], nil
}

func TestARuleIsDescribedAsItWasWritten(t *testing.T) {
	for body, want := range map[string]string{
		"limits: [5/1m]\ncost: 1": "5/1m by sliding-log",
		"limits: [5/1m]\non_unavailable: {1: open, 20: local, else: closed}":                                   "5/1m by sliding-log, on_unavailable {1: open, 20: local, else: closed}",
		"limits: [5/1m]\non_unavailable: local\nguard: true":                                                   "5/1m by sliding-log, on_unavailable local, guard",
		"limits: [10/1m]\ncandidate: {limits: [5/1m]}":                                                         "10/1m by sliding-log, candidate 5/1m by sliding-log, not enforced",
		"limits: [10/1m]\ncandidate: {limits: [5/1m, 50/1h], enforce_percent: 10}":                             "10/1m by sliding-log, candidate 5/1m and 50/1h by sliding-log, enforced for 10%",
		"limits: [10/1m]\ncandidate: {limits: [5/1m], enforce_percent: 0.5%}":                                  "10/1m by sliding-log, candidate 5/1m by sliding-log, enforced for 0.5%",
		"limits: [10/1m]\nalgorithm: gcra\ncandidate: {limits: [5/1m]}":                                        "10/1m by gcra, candidate 5/1m by gcra, not enforced",
		"limits: [10/1m]\nalgorithm: fixed-window\ncandidate: {limits: [10/1m], algorithm: sliding-log}":       "10/1m by fixed-window, candidate 10/1m by sliding-log, not enforced",
		"rate_limit: {unit: minute, requests_per_unit: 10}\ncandidate: {limits: [5/1m], enforce_percent: 100}": "10/1m by sliding-log, candidate 5/1m by sliding-log, enforced for 100%",
		"limits: [10/1m]\nalgorithm: sliding-buckets\nresolution: 1s\ncandidate: {limits: [5/1m]}":             "10/1m by sliding-buckets of 1s, candidate 5/1m by sliding-buckets of 1s, not enforced",
		"limits: [10/1m]\ncount_refused: true\ncandidate: {limits: [5/1m]}":                                    "10/1m by sliding-log, count_refused, candidate 5/1m by sliding-log, not enforced",
	} {
		rule, err := ruleOf(body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := rule.Describe(); got != want {
			t.Errorf("%s\nis %q, want %q", body, got, want)
		}
		if rule.Candidate == nil {
			continue
		}
		if rule.Candidate.Options.CountRefused != rule.Options.CountRefused {
			t.Errorf("%s: the candidate charges refused calls otherwise than the rule", body)
		}
		if _, err := sash.NewPolicy(&rule.Candidate.Options, rule.Candidate.Limits...); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestAWrongCandidateSaysWhatToDo(t *testing.T) {
	for body, want := range map[string]string{
		"candidate: {limits: [5/1m]}":                                                   "f.yaml:4: algorithm, resolution, cost, block, scope, lease, on_unavailable and candidate need rate_limit or limits",
		"limits: [10/1m]\ncandidate: {limits: [5/1m]}\nshadow_mode: true":               "f.yaml:5: candidate beside shadow_mode",
		"limits: [10/1m]\ncandidate: {limits: [5/1m]}\nquota_mode: true":                "f.yaml:5: candidate beside shadow_mode or quota_mode",
		"limits: [10/1m]\ncandidate: {enforce_percent: 5}":                              "f.yaml:5: candidate needs limits",
		"limits: [10/1m]\ncandidate: 5/1m":                                              "f.yaml:5: candidate must be a mapping",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: 101":         "enforce_percent \"101\" must be a number from 0 to 100",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: some":        "enforce_percent \"some\"",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  enforce_percent: NaN":         "enforce_percent \"NaN\"",
		"limits: [10/1m]\ncandidate:\n  limits: [5 a minute]":                           "f.yaml:6: ",
		"limits: [10/1m]\ncandidate:\n  limits: []":                                     "f.yaml:6: ",
		"limits: [10/1m]\ncost: 8\ncandidate:\n  limits: [5/1m]":                        "f.yaml:7: a cost of 8 units can never fit into 5/1m",
		"limits: [10/1m]\ncandidate:\n  limits: [5/1m]\n  percent: 3":                   "unknown key \"percent\": candidate can have algorithm, enforce_percent, limits, resolution",
		"rate_limit: {unit: minute, requests_per_unit: 0}\ncandidate: {limits: [5/1m]}": "f.yaml:5: candidate beside a limit that refuses everything",
		"rate_limit: {unlimited: true}\ncandidate: {limits: [5/1m]}":                    "candidate need rate_limit or limits",
	} {
		if _, err := ruleOf(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nis %v, want %s", body, err, want)
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
	cfg, err := ParseBy(Defaults{Algorithm: sash.FixedWindow, CountRefused: true}, false, File{"x.yaml", []byte(text)})
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
