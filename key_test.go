package sash_test

import (
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/memstore"
)

func TestAPlainKeyIsReadable(t *testing.T) {
	if got := sash.Key("user", "42", "GET /items"); got != "user:42:GET%20/items" {
		t.Errorf("it is %q", got)
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
