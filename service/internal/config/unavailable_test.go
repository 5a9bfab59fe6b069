package config

import (
	"slices"
	"testing"

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
