package config

import (
	"slices"
	"strings"
	"testing"
)

func hidden(t *testing.T, text, domain, key string) string {
	t.Helper()
	c := parsed(t, text)
	given := []Entry{{"plain", "a"}, {key, "b"}}
	out := c.Hide(domain, given, func(value string) string { return "<" + value + ">" })
	if given[1].Value != "b" || out[0].Value != "a" {
		t.Errorf("Hide made %v of %v", out, given)
	}
	return out[1].Value
}

func TestWhichValuesAreSecret(t *testing.T) {
	const some = "domain: d\ndescriptors:\n- {key: token, secret: true, limits: [1/1m]}\n- {key: above, descriptors: [{key: below, secret: true}]}\n" +
		"- {key: cookie, secret: false, limits: [1/1m]}\n- {key: x-api-key, limits: [1/1m]}\n- {key: user, limits: [1/1m]}\n"
	for _, c := range []struct {
		what, domain, key string
		secret            bool
	}{
		{"as the configuration says", "d", "token", true},
		{"below another", "d", "below", true},
		{"other keys", "d", "user", false},
		{"a header of credentials", "d", "x-api-key", true},
		{"one that the configuration does not have", "d", "authorization", true},
		{"one that it says is none", "d", "cookie", false},
		{"the same in another domain", "e", "cookie", true},
		{"capital letters", "d", "Authorization", true},
		{"underscores", "d", "api_key", true},
		{"both", "d", "X_Api_Key", true},
		{"another spelling of one that is clear", "d", "Cookie", true},
		{"a longer one", "d", "x-api-keys", false},
		{"a name that programs choose", "d", "access_token", true},
		{"another", "d", "Session", true},
		{"one more", "e", "password", true},
		{"and another", "e", "client_secret", true},
		{"letters as in programs", "d", "accessToken", true},
		{"a name without a descriptor that has one in it", "d", "token_count", false},
	} {
		if got, want := hidden(t, some, c.domain, c.key), map[bool]string{true: "<b>", false: "b"}[c.secret]; got != want {
			t.Errorf("%s: %s of %s is %q, want %q", c.what, c.key, c.domain, got, want)
		}
	}
	c := parsed(t, some)
	if given := []Entry{{"token", ""}, {"user", "a"}}; &c.Hide("d", given, strings.ToUpper)[0] != &given[0] {
		t.Error("entries without a secret value are copied")
	}
	if text := c.Rules()[0].Describe(); !strings.HasSuffix(text, ", secret token") {
		t.Errorf("described as %q", text)
	}
	c = parsed(t, "domain: d\ndescriptors:\n- {key: X-Api_Key, limits: [1/1m]}\n- {key: 'x-*', limits: [5/1m]}\n")
	for i, want := range []string{"X-Api_Key", "x-access-token x-api-key x-auth-token"} { // which needs SASH_SECRET_KEYS
		if got := strings.Join(c.Rules()[i].Secrets, " "); got != want {
			t.Errorf("secrets of rule %d: %s, want %s", i, got, want)
		}
	}
}

// A name makes values secret, with a warning until the configuration says that it is so, or is not. It does not where that
// would break a configuration that matches them, or in place of Envoy's service.
func TestANameThatProgramsChooseIsAGuess(t *testing.T) {
	for _, c := range []struct {
		what, rules string
		headersOnly bool
		secret      bool
		warns       string
	}{
		{"alone", "- {key: Access_Token, limits: [1/1m]}", false, true, `x.yaml:3: the values of "Access_Token" are secret because of its name: set secret: true`},
		{"below another", "- {key: user, descriptors: [{key: Access_Token, limits: [1/1m]}]}", false, true, "are secret because of its name"},
		{"declared", "- {key: Access_Token, secret: true, limits: [1/1m]}", false, true, ""},
		{"declared clear", "- {key: Access_Token, secret: false, limits: [1/1m]}", false, false, ""},
		{"declared clear beside a value", "- {key: Access_Token, secret: false, limits: [1/1m]}\n- {key: Access_Token, value: free}", false, false, ""},
		{"beside a value", "- {key: Access_Token, limits: [1/1m]}\n- {key: Access_Token, value: free}", false, false, "are in clear text in Redis and in logs"},
		{"in place of Envoy's service", "- {key: Access_Token, limits: [1/1m]}", true, false, ""},
	} {
		cfg, err := Parse(Defaults{HeadersOnly: c.headersOnly}, false, File{"x.yaml", []byte("domain: d\ndescriptors:\n" + c.rules + "\n")})
		if err != nil {
			t.Fatal(err)
		}
		out := cfg.Hide("d", []Entry{{"Access_Token", "b"}}, func(string) string { return "hidden" })
		secret, warnings := out[0].Value == "hidden", strings.Join(cfg.Warnings(), "\n")
		if secret != c.secret || !strings.Contains(warnings, c.warns) || c.warns == "" && warnings != "" || len(cfg.Rules()[0].Secrets) > 0 != secret {
			t.Errorf("%s: secret %v, want %v, with %q", c.what, secret, c.secret, warnings)
		}
	}
	for _, key := range []string{
		"csrf_token", "user_password", "session_id", "api-key", "x-auth-token", "accessToken", "login.passwd", "myAPIKey", "db_credentials", "Set-Cookie", "clientSecret2",
		"tokens", "secretary", "obsession", "keyboard", "apikeys", "Sessions",
	} {
		cfg := parsed(t, "domain: d\ndescriptors: [{key: "+key+", limits: [1/1m]}]\n")
		out := cfg.Hide("d", []Entry{{key, "b"}}, func(string) string { return "hidden" })
		want := !slices.Contains([]string{"clientSecret2", "tokens", "secretary", "obsession", "keyboard", "apikeys", "Sessions"}, key)
		noted := key == "api-key" || key == "x-auth-token" || len(cfg.Warnings()) == 1
		if secret := out[0].Value == "hidden"; secret != want || len(cfg.Rules()[0].Secrets) > 0 != want || want != noted {
			t.Errorf("%s: secret %v, %v, with %q", key, secret, cfg.Rules()[0].Secrets, cfg.Warnings())
		}
	}
	cfg, err := Parse(Defaults{HeadersOnly: true}, false, File{"x.yaml", []byte("domain: d\ndescriptors: [{key: x-api-key, limits: [1/1m]}]\n")})
	if err != nil || len(cfg.Rules()[0].Secrets) != 1 {
		t.Errorf("a header in place of Envoy's service: %v", err)
	}
}

// A request has the name of a secret value, whose letters are any: a wildcard must not match by them, nor by the value,
// which only sash config explain has.
func TestAWildcardInTheKeyIsNotComparedWithSecretValues(t *testing.T) {
	c := parsed(t, "domain: d\ndescriptors:\n- {key: '*', value: '*A', limits: [1/1m]}\n- {key: 'x-*', value: 'hmac*', limits: [2/1m]}\n"+
		"- {key: 'cook*', limits: [3/1m]}\n- {key: 'a*', value: '*', limits: [4/1m]}\n")
	for _, tt := range []struct {
		entry Entry
		units int64 // of the rule, or 0 for none
	}{
		{Entry{"user", "A"}, 1},
		{Entry{"x-api-key", "A"}, 0},
		{Entry{"x-api-key", "hmac-A"}, 0},
		{Entry{"X-API-Key", "hmac-b"}, 0},
		{Entry{"x-user", "hmac-b"}, 2},
		{Entry{"cookie", "A"}, 3}, // whatever the value is
		{Entry{"authorization", "A"}, 4},
		{Entry{"authorization", ""}, 4},
	} {
		lines, found, err := c.Explain("d", []Entry{tt.entry})
		var units int64
		if found.Rule != nil {
			units = found.Rule.Limits[0].Units
		}
		if err != nil || units != tt.units || strings.HasSuffix(lines[0], " wildcard") != (units > 0) {
			t.Errorf("%v: a rule of %d units, want %d; %v, %v", tt.entry, units, tt.units, lines, err)
		}
	}
}
