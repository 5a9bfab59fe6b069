package main

import (
	"encoding/json"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

func TestExitCodesOfDecisions(t *testing.T) {
	url := "redis://" + redistest.Start(t).Addr()
	env := []string{"SASH_REDIS=" + url}
	limit := []string{"--limit", "3/1h", "--limit", "4/24h"}
	for _, step := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"peek", "youtube"}, 0, "allowed: 3 units left (3 of 3/1h, 4 of 4/24h)"},
		{[]string{"allow", "youtube", "--cost", "2"}, 0, "allowed: 1 unit left (1 of 3/1h, 2 of 4/24h)"},
		{[]string{"allow", "youtube", "--cost", "2"}, 1, "refused by 3/1h: 1 unit left, retry after 59m5"},
		{[]string{"allow", "youtube"}, 0, "allowed: 0 units left"},
		{[]string{"allow", "youtube"}, 1, "refused by 3/1h: 0 units left, retry after 59m5"},
		{[]string{"peek", "youtube"}, 1, "refused by 3/1h: 0 units left, retry after 59m5"},
		{[]string{"allow", "other"}, 0, "allowed: 2 units left"},
		{[]string{"allow", "youtube", "--prefix", "app"}, 0, "allowed: 2 units left"},
		{[]string{"allow", "youtube", "--algorithm", "fixed-window"}, 0, "allowed: 2 units left"},
		{[]string{"allow", "youtube", "--redis", url + "/1"}, 0, "allowed: 2 units left"},
		{[]string{"reset", "youtube"}, 0, "nothing is charged"},
		{[]string{"peek", "youtube"}, 0, "allowed: 3 units left"},
	} {
		code, out, err := sash(t, env, append(step.args, limit...)...)
		if code != step.code || !strings.HasPrefix(out, step.say) && !strings.Contains(out, "nothing is charged") || err != "" {
			t.Fatalf("%v: exit %d, %q, %q; want %d and %q", step.args, code, out, err, step.code, step.say)
		}
	}
	if code, _, err := sash(t, env, "reset", "youtube"); code != 0 {
		t.Errorf("reset without a limit: exit %d, %s", code, err)
	}
	if code, _, err := sash(t, env, "reset", "youtube", "--algorithm", "sliding-buckets"); code != 0 {
		t.Errorf("reset of buckets: exit %d, %s", code, err)
	}
}

func TestDecisionsInJSON(t *testing.T) {
	env := []string{"SASH_REDIS=" + redistest.Start(t).Addr()}
	type decision struct {
		Allowed    *bool    `json:"allowed"`
		Remaining  *int64   `json:"remaining"`
		RetryAfter *float64 `json:"retry_after"`
		ResetAfter *float64 `json:"reset_after"`
		RefusedBy  *string  `json:"refused_by"`
		Limits     []any    `json:"limits"`
	}
	for _, step := range []struct {
		command string
		code    int
		by      string
	}{{"peek", 0, ""}, {"allow", 0, ""}, {"allow", 1, "1/1h"}, {"peek", 1, "1/1h"}} {
		code, out, _ := sash(t, env, step.command, "k", "--limit", "1/1h", "--json")
		var d decision
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatal(err, out)
		}
		if code != step.code || *d.Allowed != (code == 0) || len(d.Limits) != 1 || d.ResetAfter == nil || d.Remaining == nil {
			t.Errorf("%s: exit %d, %s", step.command, code, out)
		}
		refused := step.by != ""
		if (*d.RetryAfter > 3590) != refused || (d.RefusedBy != nil) != refused || refused && *d.RefusedBy != step.by {
			t.Errorf("%s: %s", step.command, out)
		}
	}
	if code, out, _ := sash(t, env, "reset", "k", "--json"); code != 0 || out != "{\"key\":\"k\",\"reset\":true}\n" {
		t.Errorf("reset: exit %d, %q", code, out)
	}
}

func TestMistakesAreExitCode2AndSayWhatToDo(t *testing.T) {
	env := []string{"SASH_REDIS=redis://user:secret@127.0.0.1:1"}
	for name, tt := range map[string]struct {
		env  []string
		args []string
		say  string
	}{
		"no Redis":               {nil, []string{"allow", "--limit", "1/1s", "k"}, "forgotten when it exits"},
		"no Redis for peek":      {nil, []string{"peek", "--limit", "1/1s", "k"}, "SASH_REDIS"},
		"no Redis for reset":     {nil, []string{"reset", "k"}, "SASH_REDIS"},
		"Redis does not answer":  {env, []string{"allow", "--limit", "1/1s", "k"}, "redis at 127.0.0.1:1"},
		"not a Redis URL":        {nil, []string{"allow", "--limit", "1/1s", "k", "--redis", "redis://u:secret@h:p"}, "not a Redis URL"},
		"no limit":               {env, []string{"allow", "k"}, "--limit is missing"},
		"bad limit":              {env, []string{"allow", "--limit", "1 per second", "k"}, `write "1/s"`},
		"no key":                 {env, []string{"allow", "--limit", "1/1s"}, "0 arguments instead of a KEY"},
		"two keys":               {env, []string{"allow", "--limit", "1/1s", "a", "b"}, "2 arguments instead of a KEY"},
		"empty key":              {env, []string{"allow", "--limit", "1/1s", ""}, "invalid key"},
		"cost zero":              {env, []string{"allow", "--limit", "1/1s", "k", "--cost", "0"}, "at least 1"},
		"cost above the limit":   {env, []string{"allow", "--limit", "1/1s", "k", "--cost", "2"}, "can never fit into 1/1s"},
		"peek above the limit":   {env, []string{"peek", "--limit", "1/1s", "k", "--cost", "2"}, "can never fit into 1/1s"},
		"cost a text":            {env, []string{"allow", "--limit", "1/1s", "k", "--cost", "many"}, "--cost"},
		"unknown algorithm":      {env, []string{"allow", "--limit", "1/1s", "k", "--algorithm", "leaky"}, "unknown algorithm"},
		"unknown flag":           {env, []string{"allow", "--limits", "1/1s", "k"}, "(see sash allow --help)"},
		"unknown command":        {env, []string{"alow"}, "unknown command"},
		"verify without Redis":   {nil, []string{"verify"}, "SASH_REDIS"},
		"verify, no answer":      {env, []string{"verify"}, "redis at 127.0.0.1:1"},
		"verify for nothing":     {env, []string{"verify", "--for", "1ms"}, "a second at least"},
		"verify without workers": {env, []string{"verify", "--workers", "0"}, "from 1 to 1000"},
		"verify by a guess":      {env, []string{"verify", "--algorithm", "leaky"}, "unknown algorithm"},
		"a history alone":        {nil, []string{"verify", "--history", "x"}, "give --limit too"},
		"a limit alone":          {nil, []string{"verify", "--limit", "1/1m"}, "give --history FILE too"},
		"a history and a Redis":  {nil, []string{"verify", "--history", "x", "--limit", "1/1m", "--redis", "y"}, "no store is called"},
		"no such history":        {nil, []string{"verify", "--history", "gone.jsonl", "--limit", "1/1m"}, "gone.jsonl: no such file"},
		"a history and a day":    {nil, []string{"verify", "--history", "x", "--limit", "1/day@UTC"}, "calendar limit"},
		"an empty history":       {nil, []string{"verify", "--history", "-", "--limit", "1/1m"}, "standard input: there is no call in it"},
		"verify an argument":     {env, []string{"verify", "everything"}, "give the address with --redis"},
		"doctor without Redis":   {nil, []string{"doctor"}, "SASH_REDIS"},
		"doctor in no time":      {env, []string{"doctor", "--budget", "0s"}, "above zero"},
		"doctor, unknown flag":   {env, []string{"doctor", "--fix"}, "(see sash doctor --help)"},
	} {
		code, out, err := sash(t, tt.env, tt.args...)
		if code != 2 || out != "" || !strings.HasPrefix(err, "sash: ") || !strings.Contains(err, tt.say) || strings.Contains(err, "secret") {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", name, code, out, err, tt.say)
		}
	}
}

func TestHelpStandsAlone(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help", "allow"}, {"serve", "--help"}, {"config"}, {"verify", "--help"}, {"doctor", "--help"}} {
		code, out, err := sash(t, nil, args...)
		if code != 0 || !strings.Contains(out, "Usage:") || err != "" {
			t.Errorf("%v: exit %d, %q", args, code, err)
		}
	}
	if code, out, _ := sash(t, nil, "help", "redis"); code != 0 || !strings.Contains(out, "redis+sentinel://") {
		t.Errorf("help redis: exit %d, %s", code, out)
	}
	_, out, _ := sash(t, nil)
	for _, want := range []string{"300/5m", "SASH_REDIS", "Exit codes", "sash serve", "sash doctor", "sash verify"} {
		if !strings.Contains(out, want) {
			t.Errorf("sash alone does not mention %q", want)
		}
	}
}

func TestConfigCommands(t *testing.T) {
	code, out, _ := sash(t, nil, "config", "example")
	if code != 0 || !strings.Contains(out, `limits: ["10/1m", "60/1h"]`) {
		t.Errorf("example: exit %d, %s", code, out)
	}
	code, out, _ = sash(t, nil, "config", "check", "../../example.yaml")
	if code != 0 || !strings.Contains(out, "demo / remote_address: 10/1m and 60/1h by sliding-log") {
		t.Errorf("check: exit %d, %s", code, out)
	}
	far := tempFile(t, "far.yaml", "domain: d\ndescriptors:\n- {key: a, limits: [100/1m], scope: global}\n")
	if code, out, _ := sash(t, nil, "config", "check", far); code != 0 || !strings.Contains(out, "d / a: 100/1m by sliding-log, scope global, lease 3s") {
		t.Errorf("check of a global rule: exit %d, %s", code, out)
	}
	if _, out, _ := sash(t, nil, "config", "check", "--json", far); !strings.Contains(out, `"scope":"global","lease":"3s"`) {
		t.Errorf("check of a global rule as JSON: %s", out)
	}
	odd := tempFile(t, "odd.yaml", "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day}}\n")
	if code, out, _ := sash(t, nil, "config", "check", odd); code != 0 || !strings.Contains(out, "warning: "+odd+":3: requests_per_unit is missing") {
		t.Errorf("check of an odd one: exit %d, %s", code, out)
	}
	if code, _, err := sash(t, nil, "config", "check", "main.go"); code != 2 || !strings.Contains(err, "main.go:") {
		t.Errorf("check of something else: exit %d, %s", code, err)
	}
}
