package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

const regionRules = `domain: shop
descriptors:
  - {key: user, limits: ["100/10m", "5000/1h"], scope: global, lease: 700ms}
  - {key: here, limits: ["100/10m"]}
`

// planet starts a sash serve in each of three regions, each with a Redis of its own, and returns the value of --regions.
func planet(t *testing.T, home func() *redistest.Server) string {
	t.Helper()
	rules := tempFile(t, "rules.yaml", regionRules)
	var regions []string
	for _, name := range []string{"eu", "us", "ap"} {
		s := serve(t, "--config", rules, "--home", home().Addr(), "--redis", redistest.Start(t).Addr(), "--budget", "2s", "--home-budget", "2s")
		regions = append(regions, name+"="+s.url)
	}
	return strings.Join(regions, ",")
}

func TestVerifyOverRegionsThatShareAHome(t *testing.T) {
	t.Parallel()
	home := redistest.Start(t)
	regions := planet(t, func() *redistest.Server { return home })
	user := []string{"verify", "--regions", regions, "--domain", "shop", "--for", "6s", "--seed", "42", "--descriptor", "user"}
	code, out, err := sash(t, nil, user...)
	if code != 0 || err != "" || !strings.HasPrefix(out, "kept: no window held more than its limit over all regions\n") || !strings.Contains(out, "seed 42") {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	for _, row := range []string{`(?m)^  100/10m +[1-9]\d* of 100 +[1-9]\d* *$`, `(?m)^  5000/1h +[1-9]\d* of 5000 +0 +which shows nothing: it was not reached$`, `(?m)^  eu( +\d+){5} +\S+s +\S+s *$`, `(?m)^  us( +\d+){5} `, `(?m)^  ap( +\d+){5} `} {
		if !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("no row %s in\n%s", row, out)
		}
	}
	code, out, err = sash(t, nil, append(user[:len(user)-1], "here")...)
	if code != 2 || out != "" || !strings.Contains(err, "region eu at http://") || !strings.Contains(err, "no scope: global") {
		t.Errorf("a limit of each region: exit %d, %s%s", code, out, err)
	}
	code, out, err = sash(t, nil, append(user[:len(user)-1], "stranger")...)
	if code != 2 || out != "" || !strings.Contains(err, "no rule of the domain shop limits these entries") {
		t.Errorf("a rule that nobody has: exit %d, %s%s", code, out, err)
	}
}

// Each region has another home: then each of them admits the whole limit.
func TestVerifyOverRegionsThatShareNoHome(t *testing.T) {
	t.Parallel()
	regions := planet(t, func() *redistest.Server { return redistest.Start(t) })
	args := []string{"verify", "--regions", regions, "--domain", "shop", "--descriptor", "user", "--for", "6s"}
	code, out, err := sash(t, nil, args...)
	said := regexp.MustCompile(`^violated: (\d+) units over all regions in the 10m0s that end at \d\d:\d\d:\d\d\.\d{6}, and the limit is 100/10m: (\d+) more\n` +
		`  (\d+) of them in eu\n  (\d+) of them in us\n  (\d+) of them in ap\n`).FindStringSubmatch(out)
	if code != 1 || err != "" || said == nil {
		t.Fatalf("exit %d, %s%s", code, out, err)
	}
	number := func(i int) (n int) { _, _ = fmt.Sscan(said[i], &n); return n }
	if number(1) <= 100 || number(1) > 300 || number(2) != number(1)-100 || number(3)+number(4)+number(5) != number(1) {
		t.Error(out)
	}
	code, out, _ = sash(t, nil, append(args, "--json")...)
	var v struct {
		Verdict string
		Limits  []struct {
			Limit       string
			Most, Units int
			ByRegion    map[string]int `json:"by_region"`
		}
		Regions []struct {
			Name                      string
			Admitted, Refused, Leased int
			P50, P99                  float64
		}
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 1 || v.Verdict != "violated" || len(v.Limits) != 2 || len(v.Regions) != 3 ||
		v.Limits[0].Units <= 100 || len(v.Limits[0].ByRegion) != 3 || v.Regions[2].Name != "ap" || v.Regions[2].P99 <= 0 || v.Regions[0].Leased+v.Regions[1].Leased+v.Regions[2].Leased == 0 {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
}

func TestVerifyOverRegionsNeedsARule(t *testing.T) {
	t.Parallel()
	const both = "eu=http://127.0.0.1:1,us=http://127.0.0.1:2"
	rule := []string{"--domain", "shop", "--descriptor", "user"}
	for name, c := range map[string]struct {
		args []string
		say  string
	}{
		"one region":           {append(rule, "--regions", "eu=http://127.0.0.1:1"), "at least two"},
		"a URL twice":          {append(rule, "--regions", "eu=http://127.0.0.1:1,us=http://127.0.0.1:1/"), "eu and us have the same URL"},
		"a name twice":         {append(rule, "--regions", "eu=http://127.0.0.1:1,eu=http://127.0.0.1:2"), "two regions are called eu"},
		"no URL":               {append(rule, "--regions", "eu=127.0.0.1:1,us=http://127.0.0.1:2"), "give NAME=URL"},
		"no name":              {append(rule, "--regions", "http://127.0.0.1:1,http://127.0.0.1:2"), "give NAME=URL"},
		"a password":           {append(rule, "--regions", "eu=http://me:secret@127.0.0.1:1,"+both), "SASH_TOKEN"},
		"a region that is off": {append(rule, "--regions", both), "region eu at http://127.0.0.1:1: "},
		"no domain":            {[]string{"--regions", both, "--descriptor", "user"}, "--domain"},
		"no descriptor":        {[]string{"--regions", both, "--domain", "shop"}, "--descriptor"},
		"an empty value":       {[]string{"--regions", both, "--domain", "shop", "--descriptor", "user="}, `the value of "user" is empty`},
		"an empty key":         {[]string{"--regions", both, "--domain", "shop", "--descriptor", "user,"}, "--descriptor: "},
		"too few workers":      {append(rule, "--regions", both, "--workers", "1"), "each of the 2 regions"},
		"a Redis beside":       {append(rule, "--regions", both, "--redis", "127.0.0.1:1"), "--redis: with --regions"},
		"an algorithm beside":  {append(rule, "--regions", both, "--algorithm", "gcra"), "--algorithm: with --regions"},
		"a rule alone":         {rule, "--domain: give --regions"},
	} {
		code, out, err := sash(t, nil, append([]string{"verify"}, c.args...)...)
		if code != 2 || out != "" || !strings.HasPrefix(err, "sash: ") || !strings.Contains(err, c.say) || strings.Contains(err, "secret") {
			t.Errorf("%s: exit %d, %q, %q; want 2 and %q", name, code, out, err, c.say)
		}
	}
}
