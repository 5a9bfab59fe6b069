package sash_test

import (
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/memstore"
)

func TestKeysOfDifferentPartsDiffer(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	parts := [][]string{
		{"a_b", "c"}, {"a", "b_c"}, {"a:b", "c"}, {"a", "b:c"}, {"a", "b", "c"}, {"a%3Ab", "c"},
		{"a"}, {"a", ""}, {"", "a"}, {"", "", "a"}, {"{a}"}, {"a\nb"}, {"a\x00b"}, {"ä"}, {"~3~a"},
		{long}, {long + "x"}, {long, "x"}, {strings.Repeat("é", 50)}, {strings.Repeat("é", 51)},
		{sash.Key(long)}, strings.Split(strings.Repeat("p ", 400), " "),
	}
	seen := map[string][]string{}
	for _, p := range parts {
		key := sash.Key(p...)
		if other, ok := seen[key]; ok {
			t.Errorf("%.40q and %.40q have the same key %q", p, other, key)
		}
		seen[key] = p
		if len(key) > sash.MaxKeyLength {
			t.Errorf("the key of %.40q has %d bytes", p, len(key))
		}
		if strings.ContainsAny(key, "{} \r\n\x00") {
			t.Errorf("the key %q has a character that does harm", key)
		}
	}
	if got := sash.Key("user", "42", "GET /items"); got != "user:42:GET%20/items" {
		t.Errorf("a plain key is %q", got)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	token := "ghp_secret"
	part := sash.Secret([]byte("pepper"), token)
	if strings.Contains(sash.Key("token", part), "secret") || len(part) != 43 {
		t.Errorf("the part is %q", part)
	}
	if part != sash.Secret([]byte("pepper"), token) || part == sash.Secret([]byte("salt"), token) || part == sash.Secret([]byte("pepper"), token+"x") {
		t.Error("a secret's part must depend on the secret and the application's key, and on nothing else")
	}
	if part := sash.Secret([]byte("pepper"), ""); part != "" {
		t.Errorf("a missing secret looks like one: %q", part)
	}
}

func TestAKeyOfEmptyPartsIsInvalid(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(1))
	for _, key := range []string{sash.Key(), sash.Key(""), sash.Key("", ""), sash.Key("", "", ""), " :", "\u00a0"} {
		if _, err := l.Allow(t.Context(), key); !errors.Is(err, sash.ErrInvalidKey) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{":a", "a:", "\u00a0:a", "{a}:"} {
		if _, err := l.Allow(t.Context(), key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}
