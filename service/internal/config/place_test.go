package config

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func placed(keys string) (*Config, error) {
	return Parse("x.yaml", []byte("domain: d\ndescriptors:\n- key: k\n  "+strings.ReplaceAll(keys, "\n", "\n  ")+"\n"))
}

func TestPlaceOfARule(t *testing.T) {
	for name, test := range map[string]struct {
		keys     string
		want     Place
		describe string
	}{
		"each region has its own": {`limits: ["100/1m"]`, Place{}, "100/1m by sliding-log"},
		"the same, said":          {"limits: [\"100/1m\"]\nscope: region", Place{}, "100/1m by sliding-log"},
		"a lease in one region": {
			"limits: [\"100/1m\"]\nlease: 500ms", Place{Lease: 500 * time.Millisecond}, "100/1m by sliding-log, lease 500ms",
		},
		"a twentieth of the window": {
			"limits: [\"100/1m\"]\nscope: global", Place{Global: true, Lease: 3 * time.Second}, "100/1m by sliding-log, scope global, lease 3s",
		},
		"of the shortest window": {
			"limits: [\"100/1h\", \"10/40s\"]\nscope: global", Place{Global: true, Lease: 2 * time.Second}, "100/1h and 10/40s by sliding-log, scope global, lease 2s",
		},
		"a second, in which a trip over an ocean fits": {
			"limits: [\"100/10s\"]\nscope: global", Place{Global: true, Lease: time.Second}, "100/10s by sliding-log, scope global, lease 1s",
		},
		"a quarter of a short window": {
			"limits: [\"100/1s\"]\nscope: global", Place{Global: true, Lease: 250 * time.Millisecond}, "100/1s by sliding-log, scope global, lease 250ms",
		},
		"a minute at most": {
			"limits: [\"100/24h\"]\nscope: global", Place{Global: true, Lease: time.Minute}, "100/24h by sliding-log, scope global, lease 1m",
		},
		"its own": {
			"limits: [\"100/1m\"]\nscope: global\nlease: 30s", Place{Global: true, Lease: 30 * time.Second}, "100/1m by sliding-log, scope global, lease 30s",
		},
		"in Envoy's form": {
			"rate_limit: {unit: minute, requests_per_unit: 9}\nscope: global", Place{Global: true, Lease: 3 * time.Second}, "9/1m by sliding-log, scope global, lease 3s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := placed(test.keys)
			if err != nil {
				t.Fatal(err)
			}
			r := cfg.Rules()[0]
			if r.Place != test.want || r.Describe() != test.describe || r.Line != "x.yaml:3" || len(cfg.Warnings()) > 0 {
				t.Errorf("%+v, %q on %s, warnings %q", r.Place, r.Describe(), r.Line, cfg.Warnings())
			}
		})
	}
}

// A limit that cannot be leased holds over all regions nevertheless, at the price of a trip a call, and says so.
func TestAGlobalRuleThatCannotBeLeased(t *testing.T) {
	for name, keys := range map[string]string{
		"a period of the calendar": `limits: ["100/day@UTC"]`,
		"an algorithm":             "limits: [\"100/1m\"]\nalgorithm: fixed-window",
		"count_refused":            "limits: [\"100/1m\"]\ncount_refused: true",
		"a block":                  "limits: [\"100/1m\"]\nblock: 1m",
		"a candidate":              "limits: [\"100/1m\"]\ncandidate: {limits: [\"50/1m\"], algorithm: gcra}",
		"a log that is full":       "limits: [\"99900000/100s\"]\nalgorithm: sliding-buckets\nresolution: 1001us",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := placed(keys + "\nscope: global")
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.Rules()[0].Place; got != (Place{Global: true}) || !strings.Contains(strings.Join(cfg.Warnings(), "\n"), "takes a trip to the home") {
				t.Errorf("%+v, warnings %q", got, cfg.Warnings())
			}
			if _, err := placed(keys + "\nscope: global\nlease: 5s"); err == nil {
				t.Error("its lease is accepted")
			}
		})
	}
}

// A lease that is given to a limit of too few units does nothing, and the configuration says so.
func TestALeaseOfALimitThatIsTooSmall(t *testing.T) {
	for keys, want := range map[string]string{
		"limits: [\"63/1m\"]\nscope: global\nlease: 1s": "x.yaml:6: a limit of 63 units is too small for leases, which need 64: the home decides each call",
		"limits: [\"100/1m\", \"15/1s\"]\nlease: 100ms": "x.yaml:5: a limit of 15 units is too small for leases, which need 16: Redis decides each call",
		"limits: [\"64/1m\"]\nscope: global\nlease: 1s": "",
		"limits: [\"16/1m\"]\nlease: 1s":                "",
		"limits: [\"10/1m\"]\nscope: global":            "", // nobody has asked for one
	} {
		cfg, err := placed(keys)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(cfg.Warnings(), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: warnings %q, want %q", keys, got, want)
		}
	}
}

func TestPlaceErrorsNameTheLine(t *testing.T) {
	for name, test := range map[string]struct{ keys, want string }{
		"another scope":                 {"limits: [\"9/1m\"]\nscope: world", `x.yaml:5: scope "world" must be global`},
		"a lease too short":             {"limits: [\"9/1m\"]\nlease: 10us", `x.yaml:5: lease "10us" must be a duration from 1ms to 1m`},
		"a lease too long":              {"limits: [\"9/1h\"]\nlease: 61s", `x.yaml:5: lease "61s" must be a duration from 1ms to 1m`},
		"no duration":                   {"limits: [\"9/1m\"]\nlease: often", `x.yaml:5: lease "often" must be a duration`},
		"half of the window":            {"limits: [\"9/1m\", \"3/10s\"]\nlease: 6s", "x.yaml:5: a lease of 6s is longer than half of the window of 10s"},
		"an algorithm":                  {"limits: [\"9/1m\"]\nalgorithm: gcra\nlease: 1s", "x.yaml:6: units of this rule cannot be leased"},
		"a period":                      {"limits: [\"9/day@UTC\"]\nlease: 1s", "x.yaml:5: units of this rule cannot be leased"},
		"counted refusals":              {"limits: [\"9/1m\"]\ncount_refused: true\nlease: 1s", "x.yaml:6: units of this rule cannot be leased"},
		"a full log":                    {"limits: [\"99900000/100s\"]\nresolution: 1001us\nalgorithm: sliding-buckets\nlease: 1s", "x.yaml:7: windows are longer by the lease of 1s"},
		"no limits":                     {"scope: global", "x.yaml:4: algorithm, resolution, cost, block, scope, lease"},
		"no limits, a lease":            {"lease: 1s", "x.yaml:4: algorithm, resolution, cost, block, scope, lease"},
		"nothing to lease":              {"rate_limit: {unit: minute, requests_per_unit: 0}\nscope: global", "x.yaml:5: scope and lease beside a limit that refuses everything"},
		"a share":                       {"limits: [\"9/1m\"]\nscope: global\non_unavailable: {1: open, else: local}", "x.yaml:6: on_unavailable is local for some costs beside scope: global"},
		"a share of what is not leased": {"limits: [\"900/day@UTC\"]\nscope: global\non_unavailable: local", "x.yaml:6: on_unavailable is local beside scope: global, and a region has no own share of limits that cannot be leased"},
		"a share, in a reserve":         {"limits: [\"90/1m\"]\nscope: global\ndescriptors:\n- {key: c, reserve_below: 10%, on_unavailable: local}", "x.yaml:7: on_unavailable is local for only one of reserve_below and the descriptor above it"},
		"a reserve elsewhere":           {"limits: [\"90/1m\"]\ndescriptors:\n- {key: c, reserve_below: 10%, scope: global}", "x.yaml:6: reserve_below uses the limits of the descriptor above it"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := placed(test.keys); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// on_unavailable: local beside scope: global is an own share of each region.
func TestOwnShares(t *testing.T) {
	const local = "scope: global\non_unavailable: local\n"
	tenth := OwnShare{2, 10}
	for name, c := range map[string]struct {
		body string
		own  OwnShare
		err  string
	}{
		"own":               {"limits: [\"10/1m\"]\n" + local + "regions: 2", tenth, ""},
		"of a day and more": {"limits: [\"10/48h\"]\n" + local + "regions: 2", tenth, ""},
		"with its percent":  {"limits: [\"10/1m\"]\n" + local + "regions: 3\nown_share: 33%", OwnShare{3, 33}, ""},
		"closed":            {"limits: [\"10/1m\"]\nscope: global", OwnShare{}, ""},
		"in one region":     {"limits: [\"10/1m\"]\non_unavailable: local", OwnShare{}, ""},
		"below its parent":  {"limits: [\"90/1m\"]\n" + local + "regions: 2\ndescriptors:\n- {key: c, reserve_below: 10%}", tenth, ""},

		"too small":            {"limits: [\"900/1m\", \"9/1s\"]\n" + local + "regions: 2", OwnShare{}, "x.yaml:7: 10 % of 9/1s is no unit"},
		"nothing for the home": {"limits: [\"900/1m\"]\n" + local + "regions: 4\nown_share: 25%", OwnShare{}, "x.yaml:8: 4 regions with 25 % of each limit each leave the home nothing"},
		"no number":            {"limits: [\"900/1m\"]\n" + local, OwnShare{}, "give their number, such as regions: 3"},
		"a wrong number":       {"limits: [\"900/1m\"]\n" + local + "regions: many", OwnShare{}, "x.yaml:7: regions \"many\" must be"},
		"no regions":           {"limits: [\"900/1m\"]\n" + local + "regions: 0", OwnShare{}, "x.yaml:7: regions \"0\" must be"},
		"no percent":           {"limits: [\"900/1m\"]\n" + local + "regions: 2\nown_share: 0.1", OwnShare{}, "x.yaml:8: own_share"},
		"no own share":         {"limits: [\"900/1m\"]\nscope: global\nregions: 2", OwnShare{}, "x.yaml:6: regions and own_share are for the own share"},
		"by cost":              {"limits: [\"900/1m\"]\nscope: global\non_unavailable: {1: local, else: closed}\nregions: 2", OwnShare{}, "local for some costs"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := placed(c.body)
			if c.err != "" || err != nil {
				if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			for _, rule := range cfg.Rules() {
				if rule.Place.Own != c.own {
					t.Errorf("%v: %+v", rule, rule.Place)
				}
			}
		})
	}
}

func TestHomes(t *testing.T) {
	for _, test := range []struct {
		texts []string
		want  Homes
		err   string
	}{
		{nil, Homes{}, ""},
		{[]string{"10.0.0.7:6379"}, Homes{"": "10.0.0.7:6379"}, ""},
		{[]string{"rediss://h?tls_ca=f"}, Homes{"": "rediss://h?tls_ca=f"}, ""},
		{[]string{"h:1?db=2"}, Homes{"": "h:1?db=2"}, ""},
		{[]string{"eu=rediss://h?tls_ca=f", "us-east-1=h:1"}, Homes{"eu": "rediss://h?tls_ca=f", "us-east-1": "h:1"}, ""},
		{[]string{"eu=h:1", "eu=h:2"}, nil, "two homes eu"},
		{[]string{"h:1", "h:2"}, nil, "several homes without a name"},
		{[]string{"h:1", "eu=h:2"}, nil, "one of several homes has no name"},
		{[]string{"EU=h:1"}, nil, `"EU"`},
		{[]string{"=h:1"}, nil, "a name of a home is"},
		{[]string{"eu="}, nil, "the URL of eu is empty"},
		{[]string{""}, nil, "the URL of a home is empty"},
	} {
		homes, err := ParseHomes(test.texts)
		if test.err == "" && (err != nil || !maps.Equal(homes, test.want)) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%q: %v, %v", test.texts, homes, err)
		}
	}
}

func TestTheHomeOfAPlace(t *testing.T) {
	for _, test := range []struct {
		homes      Homes
		name       string
		want, says string
	}{
		{Homes{"": "a"}, "", "a", ""},
		{Homes{"eu": "a"}, "", "a", ""},
		{Homes{"eu": "a", "us": "b"}, "us", "b", ""},
		{nil, "", "", "give --home"},
		{nil, "eu", "", "give --home"},
		{Homes{"us": "b", "eu": "a"}, "", "", "add home: with one of eu, us"},
		{Homes{"us": "b", "eu": "a"}, "ap", "", "home: ap is no home of --home: use one of eu, us"},
		{Homes{"": "a"}, "eu", "", "give --home eu=URL"},
	} {
		got, err := HomeOf(test.homes, Place{Global: true, Home: test.name})
		if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q of %v: %q, %v", test.name, test.homes, got, err)
		}
	}
}

func TestARuleNamesItsHome(t *testing.T) {
	cfg, err := placed("limits: [\"90/1m\"]\nscope: global\nhome: eu\ndescriptors:\n- {key: c, reserve_below: 10%}")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range cfg.Rules() {
		if r.Place.Home != "eu" || !strings.HasSuffix(r.Place.Describe(), "scope global, home eu, lease 3s") {
			t.Errorf("%s: %+v, %s", r, r.Place, r.Place.Describe())
		}
	}
	for keys, want := range map[string]string{
		"limits: [\"9/1m\"]\nhome: eu":                "x.yaml:5: home names the Redis",
		"limits: [\"9/1m\"]\nscope: region\nhome: eu": "x.yaml:6: home names the Redis",
		"home: eu": "x.yaml:4: home names the Redis",
		"limits: [\"9/1m\"]\nscope: global\nhome: E u":                                              `x.yaml:6: home "E u" must be a name`,
		"limits: [\"90/1m\"]\nscope: global\ndescriptors:\n- {key: c, reserve_below: 10%, home: x}": "x.yaml:7: home names the Redis",
	} {
		if _, err := placed(keys); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}
