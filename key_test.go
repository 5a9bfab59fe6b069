package sash_test

import (
	"errors"
	"slices"
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

// FuzzKey shows that keys are bounded, harmless, and different for different parts. Each input is two
// lists of parts, separated by a byte of the fuzzer's choice.
func FuzzKey(f *testing.F) {
	for _, seed := range [][2]string{
		{"a_b|c", "a|b_c"}, {"a:b|c", "a|b:c"}, {"", "|"}, {"a|", "a"}, {"%41", "A"}, {"{x}|y", "x|y"},
		{"~1~x", "x"}, {"\n\x00\xff", "\n\x00"}, {strings.Repeat("a", 97), strings.Repeat("a", 96)},
		{strings.Repeat("abc|", 200) + "abc", ""}, {strings.Repeat("abc|", 200), strings.Repeat("abc|", 201)}, {strings.Repeat("\x00", 5000), "~5000~"},
		{"a%3Ab|c", "a:b|c"}, {"{a}", "a"}, {"ä", "a"}, {strings.Repeat("é", 50), strings.Repeat("é", 51)}, {strings.Repeat("p |", 400), "p"},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "x"}, {sash.Key(strings.Repeat("x", 1<<20)), strings.Repeat("x", 1<<20)},
	} {
		f.Add(seed[0], seed[1], byte('|'))
	}
	f.Fuzz(func(t *testing.T, first, second string, separator byte) {
		a, b := strings.Split(first, string(separator)), strings.Split(second, string(separator))
		for _, key := range []string{sash.Key(a...), sash.KeyTogether(second, a...)} {
			if len(key) > sash.MaxKeyLength {
				t.Errorf("%q has %d bytes", key, len(key))
			}
			for i := range len(key) {
				if c := key[i]; c <= ' ' || c > '~' {
					t.Errorf("%q has the byte %#x", key, c)
				}
			}
		}
		key := sash.Key(a...)
		if strings.ContainsAny(key, "{}") {
			t.Errorf("%q could have a hash tag", key)
		}
		if same := slices.Equal(a, b); same != (key == sash.Key(b...)) {
			t.Errorf("the parts %q and %q have the keys %q and %q", a, b, key, sash.Key(b...))
		}
		// Also when one part looks like what the others make together.
		for _, joined := range []string{strings.Join(a, ":"), key} {
			if one := []string{joined}; sash.Key(one...) == key && !slices.Equal(one, a) {
				t.Errorf("the parts %q and the one part %q have the key %q", a, joined, key)
			}
		}
		tagged, want := sash.KeyTogether(first, b...), sash.Key(first)
		if first == "" {
			want = "~" // an empty tag is none
		}
		if tag, rest, ok := strings.Cut(tagged, "}:"); !ok || tag != "{"+want || rest != sash.Key(b...) {
			t.Errorf("KeyTogether(%q, %q) is %q", first, b, tagged)
		}
	})
}
