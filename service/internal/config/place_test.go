package config

import (
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
		"a lease too short":             {"limits: [\"9/1m\"]\nlease: 10us", `x.yaml:5: lease "10µs" must be at least 1ms`},
		"a lease too long":              {"limits: [\"9/1h\"]\nlease: 61s", `x.yaml:5: lease "61s" must be`},
		"no duration":                   {"limits: [\"9/1m\"]\nlease: often", `x.yaml:5: lease "often" must be a duration`},
		"half of the window":            {"limits: [\"9/1m\", \"3/10s\"]\nlease: 6s", "x.yaml:5: a lease of 6s is longer than half of the window of 10s"},
		"an algorithm":                  {"limits: [\"9/1m\"]\nalgorithm: gcra\nlease: 1s", "x.yaml:6: units of this rule cannot be leased"},
		"a period":                      {"limits: [\"9/day@UTC\"]\nlease: 1s", "x.yaml:5: units of this rule cannot be leased"},
		"counted refusals":              {"limits: [\"9/1m\"]\ncount_refused: true\nlease: 1s", "x.yaml:6: units of this rule cannot be leased"},
		"a full log":                    {"limits: [\"99900000/100s\"]\nresolution: 1001us\nalgorithm: sliding-buckets\nlease: 1s", "x.yaml:7: windows are longer by the lease of 1s"},
		"no limits":                     {"scope: global", "x.yaml:4: algorithm, resolution, cost, block, scope, lease"},
		"no limits, a lease":            {"lease: 1s", "x.yaml:4: algorithm, resolution, cost, block, scope, lease"},
		"a home by name":                {"limits: [\"9/1m\"]\nscope: global\nhome: eu", "x.yaml:6: the key home is no longer known: the one home of --home keeps"},
		"nothing to lease":              {"rate_limit: {unit: minute, requests_per_unit: 0}\nscope: global", "x.yaml:5: scope and lease beside a limit that refuses everything"},
		"a share":                       {"limits: [\"9/1m\"]\nscope: global\non_unavailable: {1: open, else: local}", "x.yaml:6: on_unavailable is local for some costs beside scope: global"},
		"a share of what is not leased": {"limits: [\"900/day@UTC\"]\nscope: global\non_unavailable: local", "x.yaml:6: on_unavailable is local beside scope: global, and a region has no own share of limits that cannot be leased"},
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
