package config

import (
	"testing"

	"example.com/sash"
)

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
  descriptors:
  - {key: below, reserve_below: 20%}
- {key: blocks, limits: [5/1m], block: 1m}
`
	cfg, err := ParseBy(Defaults{Algorithm: sash.FixedWindow, CountRefused: true}, false, File{"x.yaml", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sash.Options{
		"none":        {Algorithm: sash.FixedWindow, CountRefused: true},
		"many":        {Algorithm: sash.FixedWindow, CountRefused: true},
		"own":         {Algorithm: sash.SlidingLog, CountRefused: true},
		"step":        {Algorithm: sash.SlidingBuckets, CountRefused: true},
		"above":       {Algorithm: sash.FixedWindow, CountRefused: true},
		"above.below": {Algorithm: sash.FixedWindow, CountRefused: true},
		"blocks":      {Algorithm: sash.FixedWindow},
	}
	for _, rule := range cfg.Rules() {
		if got := rule.Options; got.Algorithm != want[rule.Label].Algorithm || got.CountRefused != want[rule.Label].CountRefused {
			t.Errorf("%s: %v, count_refused %v", rule.Label, got.Algorithm, got.CountRefused)
		}
		if c := rule.Candidate; c != nil && (c.Options.Algorithm != sash.FixedWindow || c.Apart) {
			t.Errorf("the candidate of %s: %v", rule.Label, c.Options.Algorithm)
		}
	}
	if cfg.Defaults().Algorithm != sash.FixedWindow {
		t.Error("the configuration does not have its defaults")
	}
}
