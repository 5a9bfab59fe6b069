package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
)

func TestOnUnavailable(t *testing.T) {
	for text, want := range map[string][]failover.Mode{ // for costs 0, 1, 2, 20, 21 and 1,000
		"{}":                                       {failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed},
		"{guard: true}":                            {failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed},
		"{on_unavailable: open}":                   {failover.Open, failover.Open, failover.Open, failover.Open, failover.Open, failover.Open},
		"{on_unavailable: local, guard: true}":     {failover.Local, failover.Local, failover.Local, failover.Local, failover.Local, failover.Local},
		"{on_unavailable: closed}":                 {failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed, failover.Closed},
		"{on_unavailable: {1: open}}":              {failover.Open, failover.Open, failover.Closed, failover.Closed, failover.Closed, failover.Closed},
		"{on_unavailable: {1: open, 2_0: local}}":  {failover.Open, failover.Open, failover.Local, failover.Local, failover.Closed, failover.Closed},
		"{on_unavailable: {1: open, else: local}}": {failover.Open, failover.Open, failover.Local, failover.Local, failover.Local, failover.Local},
		"{on_unavailable: {else: open}}":           {failover.Open, failover.Open, failover.Open, failover.Open, failover.Open, failover.Open},
	} {
		rest := text[1:]
		cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- {key: k, limits: [1000/1m], "+rest+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		policy := cfg.Rules()[0].OnUnavailable
		var got []failover.Mode
		for _, cost := range []int64{0, 1, 2, 20, 21, 1000} {
			got = append(got, policy.Mode(cost))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestBlock(t *testing.T) {
	for text, want := range map[string]struct {
		block sash.Block
		says  string
	}{
		"cost: 1":          {sash.Block{}, "5/1m by sliding-log"},
		"block: 10m":       {sash.Block{Refusals: 5, Window: time.Minute, For: 10 * time.Minute}, "5/1m by sliding-log, block 10m after 5 refusals in 1m"},
		"block: {for: 1h}": {sash.Block{Refusals: 5, Window: time.Minute, For: time.Hour}, "5/1m by sliding-log, block 1h after 5 refusals in 1m"},
		"block: {for: 720h, refusals: 1, window: 24h}": {sash.Block{Refusals: 1, Window: 24 * time.Hour, For: 720 * time.Hour}, "5/1m by sliding-log, block 720h after 1 refusal in 24h"},
		"block: {for: 90s, refusals: 100}, algorithm: gcra, shadow_mode: true": {
			sash.Block{Refusals: 100, Window: time.Minute, For: 90 * time.Second}, "5/1m by gcra, block 1m30s after 100 refusals in 1m, shadow_mode",
		},
	} {
		cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- {key: k, limits: [5/1m], "+text+"}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		rule := cfg.Rules()[0]
		if rule.Options.Block != want.block || rule.Describe() != want.says {
			t.Errorf("%s is %+v, %q; want %+v, %q", text, rule.Options.Block, rule.Describe(), want.block, want.says)
		}
	}
	cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- {key: k, limits: [5/1m], block: 10m, candidate: {limits: [3/1m]}}\n"))
	if err != nil || cfg.Rules()[0].Candidate.Options.Block != cfg.Rules()[0].Options.Block {
		t.Errorf("a candidate has another block: %v", err)
	}
}

func TestWrongBlocksSayWhatToWrite(t *testing.T) {
	for text, want := range map[string]string{
		"limits: [5/1m], block: 10":                              `x.yaml:3: block "10" must be a duration of up to 720h, such as 10m, or {refusals: 5, window: 1m, for: 10m}`,
		"limits: [5/1m], block: null":                            `block "" must be`,
		"limits: [5/1m], block: false":                           `block "false" must be`,
		"limits: [5/1m], block: 0s":                              `block "0s" must be`,
		"limits: [5/1m], block: 721h":                            "up to 720h",
		"limits: [5/1m], block: 1ns":                             `block "1ns" must be`,
		"limits: [5/1m], block: [10m]":                           "block must be how long",
		"limits: [5/1m], block: {}":                              "block needs for, how long a subject stays out: {refusals: 5, window: 1m, for: 10m}",
		"limits: [5/1m], block: {refusals: 3, window: 2m}":       "{refusals: 3, window: 2m, for: 10m}",
		"limits: [5/1m], block: {for: 1m, refusals: 0}":          "refusals must be a whole number of at least 1",
		"limits: [5/1m], block: {for: 1m, refusals: 101}":        "refusals is 1 to 100",
		"limits: [5/1m], block: {for: 1m, window: 25h}":          `window "25h" must be a duration of up to 24h, such as 1m`,
		"limits: [5/1m], block: {for: 1m, windows: 1h}":          `unknown key "windows": block can have for, refusals, window`,
		"limits: [5/1m], block: {for: 10}":                       `for "10" must be a duration of up to 720h, such as 10m`,
		"block: 10m":                                             "need rate_limit or limits beside them",
		"limits: [5/1m], candidate: {limits: [1/1m], block: 1m}": `unknown key "block": candidate can have`,
	} {
		cfg, err := Parse("x.yaml", []byte("domain: d\ndescriptors:\n- {key: k, "+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", text, cfg, err, want)
		}
	}
}
