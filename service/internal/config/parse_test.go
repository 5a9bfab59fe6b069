package config

import (
	"io"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/service"
)

func TestErrorsNameTheLineAndTheFault(t *testing.T) {
	const head = "domain: d\ndescriptors:\n- key: a\n" // what follows is line 4
	for name, tt := range map[string]struct {
		text string
		line string
		say  string
	}{
		"no document":                  {"# nothing\n", "", "no domain"},
		"not a mapping":                {"- a\n", "1", "must be a mapping"},
		"broken YAML":                  {"domain: d\ndescriptors: [\n", "2", "did not find"},
		"no domain":                    {"descriptors: []\n", "1", "domain is missing"},
		"domain twice":                 {"domain: d\n---\ndomain: e\n---\n\ndomain: d\n", "6", "first on line 1"},
		"unknown key at the top":       {"domain: d\ndescriptor: []\n", "2", `unknown key "descriptor"`},
		"descriptors not a list":       {"domain: d\ndescriptors: {key: a}\n", "2", "must be a list"},
		"key missing":                  {"domain: d\ndescriptors:\n- value: a\n", "3", "key of a descriptor is missing"},
		"YAML key twice":               {head + "  key: b\n", "4", `duplicate key "key", first on line 3`},
		"composite key twice":          {head + "- key: b\n- key: a\n", "5", "duplicate descriptor d / a, first on line 3"},
		"unknown key":                  {head + "  limts: [1/s]\n", "4", `unknown key "limts": a descriptor can have algorithm, block, candidate, cost, count_refused, descriptors, detailed_metric, guard, key, lease, limits`},
		"on_unavailable, no limits":    {head + "  on_unavailable: open\n", "4", "need rate_limit or limits beside"},
		"an unknown mode":              {head + "  limits: [5/1s]\n  on_unavailable: ajar\n", "5", `on_unavailable "ajar" must be open, local or closed`},
		"modes in a list":              {head + "  limits: [5/1s]\n  on_unavailable: [open]\n", "5", "or a mode by cost"},
		"no modes":                     {head + "  limits: [5/1s]\n  on_unavailable: {}\n", "5", "omit it for closed"},
		"a cost that is not one":       {head + "  limits: [5/1s]\n  on_unavailable: {few: open}\n", "5", `"few" must be else or the highest cost`},
		"costs that do not grow":       {head + "  limits: [5/1s]\n  on_unavailable:\n    20: local\n    1: open\n", "7", "1 comes after 20"},
		"else not last":                {head + "  limits: [5/1s]\n  on_unavailable: {else: closed, 1: open}\n", "5", "must come last"},
		"guarded and open":             {head + "  limits: [5/1s]\n  guard: true\n  on_unavailable: open\n", "6", "could guess without a limit"},
		"guarded and open, for a cost": {head + "  limits: [5/1s]\n  on_unavailable: {1: local, 2: open}\n  guard: true\n", "5", "use local or closed"},
		"share_threshold, no wildcard": {head + "  value: foo\n  share_threshold: true\n", "3", "ends in *"},
		"bad limit":                    {head + "  limits:\n  - 5/1s\n  - 5 per second\n", "6", "a slash and a window"},
		"limit below 1":                {head + "  limits: [0/1s]\n", "4", "units must be at least 1"},
		"limits empty":                 {head + "  limits: []\n", "4", "limits is empty"},
		"limits a text":                {head + "  limits: 5/1s\n", "4", "limits must be a list"},
		"same window twice":            {head + "  limits: [5/1m, 6/60s]\n", "4", "keep the smaller"},
		"both forms":                   {head + "  limits: [5/1m]\n  rate_limit: {unit: day, requests_per_unit: 1}\n", "4", "not both"},
		"bad unit":                     {head + "  rate_limit:\n    unit: fortnight\n    requests_per_unit: 1\n", "5", `unit "fortnight"`},
		"units below zero":             {head + "  rate_limit: {unit: day, requests_per_unit: -1}\n", "4", "at least 0"},
		"unlimited with a unit":        {head + "  rate_limit: {unlimited: true, unit: day}\n", "4", "unlimited excludes a unit"},
		"replaces without a name":      {head + "  rate_limit:\n    replaces: [{name: ''}]\n", "5", "has no name"},
		"replaces itself":              {head + "  rate_limit: {name: a, replaces: [{name: a}], unit: day, requests_per_unit: 1}\n", "4", "the rule itself"},
		"bad algorithm":                {head + "  limits: [5/1s]\n  algorithm: leaky\n", "5", `unknown algorithm "leaky"`},
		"bad resolution":               {head + "  limits: [5/1s]\n  resolution: fine\n", "5", `resolution "fine"`},
		"cost above the limit":         {head + "  limits: [5/1s]\n  cost: 6\n", "5", "can never fit into 5/1s"},
		"cost without limits":          {head + "  cost: 2\n", "4", "need rate_limit or limits beside"},
		"shadow_mode not a boolean":    {head + "  limits: [5/1s]\n  shadow_mode: 1\n", "5", "true or false"},
		"a secret value":               {head + "  secret: true\n- {key: user, descriptors: [{key: a, value: abc, limits: [1/1m]}]}\n", "5", `the values of "a" are secret, and this descriptor matches one of them`},
		"another spelling of one":      {head + "- {key: API_Key, value: a, limits: [1/1m]}\n", "4", "or set secret: false"},
		"a wildcard of credentials":    {head + "- {key: authorization, value: 'Bearer *', limits: [1/1m]}\n", "4", "or set secret: false"},
		"secret and not":               {head + "  secret: true\n- {key: user, descriptors: [{key: a, secret: false}]}\n", "5", `the key "a" is secret: true in another descriptor`},
		"perhaps secret":               {head + "  secret: perhaps\n", "4", "secret must be true or false"},
		"a wildcard over some secrets": {head + "- {key: 'to*', value: 'B*', limits: [5/1m]}\n- {key: token, secret: true}\n", "4", `covers some values of "token"`},
		"a secret wildcard":            {head + "- {key: 'to*', secret: true, limits: [5/1m]}\n", "4", "secret is for one key"},
		"a merge of a number":          {head + "  <<: 5\n", "4", "the value of << must be a mapping"},
		"a merge of a key twice":       {head + "  <<: {key: b, key: c}\n", "4", `duplicate key "key"`},
		"a quoted merge key":           {head + "  '<<': {value: b}\n", "4", `unknown key "<<"`},
		"an alias into itself":         {"domain: d\ndescriptors: &x\n- key: a\n  descriptors: *x\n", "4", "nested more than"},
	} {
		_, err := Parse(Defaults{}, false, File{"f.yaml", []byte(tt.text)})
		want := "f.yaml:" + tt.line + ":"
		if tt.line == "" {
			want = "f.yaml:"
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tt.say) {
			t.Errorf("%s: %v\n\twant %s … %s", name, err, want, tt.say)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(service.Example)
	f.Add([]byte("domain: d\ndescriptors: &x\n- key: a\n  descriptors: *x\n"))
	f.Add([]byte(envoyText))
	f.Add([]byte("domain: d\ndescriptors:\n- {key: a, value: '*', share_threshold: true, rate_limit: {unit: year, requests_per_unit: 4294967295, name: n, replaces: [{name: m}]}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Parse(Defaults{}, false, File{"f", text})
		if err != nil {
			return
		}
		if err := cfg.Dump(io.Discard); err != nil {
			t.Error(err)
		}
		for _, rule := range cfg.Rules() {
			entries := make([]Entry, len(rule.Path)) // what the rule itself asks for comes to it, or to a value before it
			copy(entries, rule.Path)
			if found, err := cfg.Find(rule.Domain, entries); err != nil || found.Rule == nil || found.Key == "" {
				t.Errorf("%s is not found: %v", rule, err)
			}
			if !rule.Limited() {
				continue
			}
			if _, err := sash.New(nowhere{}, &rule.Options, rule.Limits...); err != nil {
				t.Errorf("%s was read and makes no limiter: %v", rule, err)
			}
		}
	})
}

type nowhere struct{ driver.Store }

func TestTraceSaysHowARuleIsFound(t *testing.T) {
	cfg := parsed(t, envoyText)
	for request, want := range map[string]string{
		"path=/api/v1":           "path=/api/* by wildcard; d.path_/api/*",
		"path=/api/v2/health":    "path=/api/v2/health by exact value; d.path_/api/v2/health",
		"route=a method=GET":     "route by key alone, method by key alone; d.route_a.method",
		"route=a":                "route by key alone; ",
		"route=a verb=GET x=y":   "route by key alone, nothing here; ",
		"files=files/a user=ann": "files=files/* by wildcard, user by key alone; d.files_files/*.user",
	} {
		var entries []Entry
		for field := range strings.FieldsSeq(request) {
			key, value, _ := strings.Cut(field, "=")
			entries = append(entries, Entry{key, value})
		}
		lines, found, err := cfg.Explain("d", entries)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, line := range lines {
			_, match, _ := strings.Cut(line, "  matches ")
			said = append(said, strings.NewReplacer(`"`, "", "by its", "by").Replace(match))
		}
		if got := strings.Join(said, ", ") + "; " + found.Metric; got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}
