package config

import (
	"maps"
	"strings"
	"testing"
)

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
