package httplimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/httplimit"
)

const bad = "bad"

func TestPathFold(t *testing.T) {
	for _, c := range []struct{ path, all, keepCase, clean string }{
		{"/login", "/login", "/login", "/login"},
		{"", "/", "/", "/"},
		{"*", "/*", "/*", "/*"},
		{"/LOGIN", "/login", "/LOGIN", "/LOGIN"},
		{"/login;v=1", "/login", "/login", "/login;v=1"},
		{"/login%3bv=1", "/login", "/login", "/login;v=1"},
		{"/login%20", "/login", "/login", "/login "},
		{"/login%0a", "/login", "/login", "/login\n"},
		{"/login.%20.", "/login", "/login", "/login. ."},
		{"/login/", "/login", "/login", "/login"},
		{"/login\\", "/login", "/login", "/login\\"},
		{"/login%5c", "/login", "/login", "/login\\"},
		{"//./login", "/login", "/login", "/login"},
		{"/l%6Fgin", "/login", "/login", "/login"},
		{"/l%256fgin", "/login", "/login", "/l%6fgin"},
		{"/l%25%36%66gin", "/login", "/login", "/l%6fgin"},
		{"/l%u006Fgin", "/login", "/login", "/l%u006Fgin"},
		{"/l%c1%afgin", "/login", "/login", "/l\xc1\xafgin"},
		{"/%ef%bd%8cogin", "/login", "/login", "/ｌogin"},
		{"/lo%67in%zz", "/login%zz", "/login%zz", "/lo%67in%zz"},
		{"/a%2fb", "/a/b", "/a/b", "/a/b"},
		{"/a/c/../b", "/a/b", "/a/b", "/a/b"},
		{"/a/%2E%2e/b", "/b", "/b", "/b"},
		{"/\u212aey/\u017ft", "/key/st", "/\u212aey/\u017ft", "/\u212aey/\u017ft"},
		// Servers disagree.
		{"/x/..;/login", bad, bad, "/x/..;/login"},
		{"/x/..%20/login", bad, bad, "/x/.. /login"},
		{"/x/%252e%252e/login", bad, bad, "/x/%2e%2e/login"},
		{`/x\..\login`, bad, bad, `/x\..\login`},
		{"/x%2f..%2flogin", bad, bad, "/login"},
		{"/x%2fy/../login", bad, bad, "/x/login"},
		{`/x\y/../login`, bad, bad, "/login"},
		{"/login//../x", bad, bad, "/x"},
		{"/login/%20/../x", bad, bad, "/login/x"},
		{"/login/;a/../x", bad, bad, "/login/x"},
		{"/login%00.html", bad, bad, "/login\x00.html"},
		{"/login;%2500/../x", bad, bad, "/x"},
	} {
		for fold, want := range map[httplimit.PathFold]string{httplimit.FoldAll: c.all, httplimit.KeepCase: c.keepCase, httplimit.CleanOnly: c.clean} {
			got, err := fold.Fold(c.path)
			if want == bad {
				if !errors.Is(err, httplimit.ErrBadKey) {
					t.Errorf("%v: %q is %q, %v; want ErrBadKey", fold, c.path, got, err)
				}
			} else if got != want || err != nil {
				t.Errorf("%v: %q is %q, %v; want %q", fold, c.path, got, err, want)
			}
		}
	}
}

// respell returns another spelling of a path that has plain segments only.
func respell(canonical string, next func(n int) int) string {
	segments := strings.Split(strings.TrimPrefix(canonical, "/"), "/")
	out := ""
	for _, segment := range segments {
		out += []string{"/", "//", "/./", "\\", "/%2e/", "/;a=b/"}[next(6)] + segment
		out += []string{"", ";v=1", " ", ".", "%09", ". .", ";a;b"}[next(7)]
	}
	out += []string{"", "/", "\\", "/."}[next(4)]
	for range next(4) { // each layer is encoded by a server in front, or by the attacker
		var b strings.Builder
		for i := 0; i < len(out); i++ {
			c := out[i]
			letter := 'a' <= c && c <= 'z'
			switch n := next(12); {
			case n == 0:
				fmt.Fprintf(&b, "%%%02x", c)
			case n == 1:
				fmt.Fprintf(&b, "%%%02X", c)
			case n == 2 && c < 0x80:
				fmt.Fprintf(&b, "%%u%04X", c)
			case n == 3 && c < 0x80:
				b.Write([]byte{0xC0 | c>>6, 0x80 | c&0x3F})
			case n == 4 && '!' <= c && c <= '~':
				b.WriteString(string(rune(c) - '!' + '\uFF01'))
			case n == 5 && letter:
				b.WriteByte(c - 'a' + 'A')
			default:
				b.WriteByte(c)
			}
		}
		out = b.String()
	}
	return out
}

func TestEverySpellingOfAPathIsOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		canonical := []string{"/login", "/a/b", "/api/v1/users/42", "/x-y_z"}[random.IntN(4)]
		spelled := respell(canonical, random.IntN)
		if got, err := httplimit.FoldAll.Fold(spelled); got != canonical || err != nil {
			t.Fatalf("%q is %q, %v; want %q", spelled, got, err, canonical)
		}
	}
}

func TestCaseFoldingIsStable(t *testing.T) {
	for c := rune(0x80); c <= unicode.MaxRune; c++ {
		if !utf8.ValidRune(c) || unicode.SimpleFold(c) == c && unicode.ToLower(c) == unicode.ToUpper(c) {
			continue
		}
		once, err := httplimit.FoldAll.Fold("/" + string(c))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := httplimit.FoldAll.Fold(once); again != once || err != nil {
			t.Errorf("%U is %q and then %q, %v", c, once, again, err)
		}
	}
}

func FuzzPathFold(f *testing.F) {
	for _, seed := range []string{"/login", "/x/..;/login", "/%25%32%35", "/a//../b", "\xef\xbc", "/%uD800", "/;/. /\x85", "/%c0%af"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		for _, fold := range []httplimit.PathFold{httplimit.FoldAll, httplimit.KeepCase} {
			folded, err := fold.Fold(escaped)
			if err != nil {
				if folded != "" || !errors.Is(err, httplimit.ErrBadKey) {
					t.Fatalf("%q, %v", folded, err)
				}
				continue
			}
			if !strings.HasPrefix(folded, "/") || !utf8.ValidString(folded) || folded != "/" && strings.HasSuffix(folded, "/") ||
				strings.Contains(folded, "//") || strings.ContainsAny(folded, ";\\\x00") {
				t.Fatalf("%v: %q is %q", fold, escaped, folded)
			}
			if again, err := fold.Fold(folded); err != nil || again != folded {
				t.Fatalf("%v: %q is %q, and then %q, %v", fold, escaped, folded, again, err)
			}
		}
	})
}

// A long path costs no more than its length.
func TestADeepEncodingIsDecodedInOnePass(t *testing.T) {
	deep := "/%" + strings.Repeat("25", 100_000) + "6c"
	if got, err := httplimit.FoldAll.Fold(deep); got != "/l" || err != nil {
		t.Errorf("%.20q, %v", got, err)
	}
}

func TestPathAsAKey(t *testing.T) {
	h := newMiddleware(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(2)), httplimit.Path(httplimit.FoldAll), nil)(ok)
	statuses := func(paths ...string) (all []int) {
		for _, p := range paths {
			all = append(all, get(h, "GET", "/", func(r *http.Request) {
				u, err := url.ParseRequestURI(p)
				if err != nil {
					t.Fatal(err)
				}
				r.URL = u
			}).status)
		}
		return all
	}
	got := fmt.Sprint(statuses("/login?a", "/LOGIN;v=1/", "/l%256fgin%20", `/login\`, "/x/..;/login", "/other"))
	if want := "[200 200 429 429 400 200]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := httplimit.Path(9)(nil); err == nil || errors.Is(err, httplimit.ErrBadKey) {
		t.Errorf("a fold that there is not: %v", err)
	}
}
