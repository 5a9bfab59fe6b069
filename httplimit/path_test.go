package httplimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
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
		{"/login%3fa/b", "/login", "/login", "/login?a/b"},
		{"/x/../login%253fa", "/login", "/login", "/login%3fa"},
		{"/login;%23", "/login", "/login", "/login;#"},
		{"/really%3f...", "/really", "/really", "/really?..."},
		{"/lo\u200c%ef%bb%bfgin", "/login", "/login", "/lo\u200c\ufeffgin"},
		{"/\u2764\ufe0f", "/\u2764", "/\u2764", "/\u2764\ufe0f"},
		{"/caf%c3%a9", "/caf\u00e9", "/caf\u00e9", "/caf\u00e9"},
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
		{"/health%3f/../login", bad, bad, "/login"},
		{"/x/..%3f", bad, bad, "/x/..?"},
		{"/x/.%e2%80%8c./login", bad, bad, "/x/.\u200c./login"},
		{"/login/%e2%80%8c/../x", bad, bad, "/login/x"},
		{"/login%2\u200c0", bad, bad, "/login%2\u200c0"},
		// Bytes that are not UTF-8 are Latin-1 to some servers, nothing to others.
		{"/login\xa0", bad, bad, "/login\xa0"},
		{"/login%A0%85", bad, bad, "/login\xa0\x85"},
		{"/caf%e9", bad, bad, "/caf\xe9"},
		{"/log\xc3\u200c\xa9in", bad, bad, "/log\xc3\u200c\xa9in"},
		{"/l%c1%afgin", bad, bad, "/l\xc1\xafgin"},
		{"/lo%f8%80%80%81%a7in", bad, bad, "/lo\xf8\x80\x80\x81\xa7in"},
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

// respell returns another spelling of a path that has plain segments only, and whether all of it is UTF-8.
func respell(canonical string, next func(n int) int) (spelled string, text bool) {
	segments := strings.Split(strings.TrimPrefix(canonical, "/"), "/")
	out := ""
	for _, segment := range segments {
		out += []string{"/", "//", "/./", "\\", "/%2e/", "/;a=b/"}[next(6)]
		i := next(len(segment) + 1)
		out += segment[:i] + []string{"", "", "\u200b", "\u200c", "\ufeff", "\u00ad", "\ufe0f"}[next(7)] + segment[i:]
		out += []string{"", ";v=1", " ", ".", "%09", ". .", ";a;b", "\u00a0"}[next(8)]
	}
	out += []string{"", "/", "\\", "/.", "%3f", "?a/b", "%23a", ";#"}[next(8)]
	text = true
	if next(4) == 0 { // a byte of Latin-1, or of a character that is longer than it has to be
		i := 1 + strings.LastIndexFunc(out, func(c rune) bool { return c < utf8.RuneSelf })
		out = out[:i] + []string{"\xa0", "\x85", "\xff", "\x80", "\xf8\x80\x80\x81\xa7"}[next(5)] + out[i:]
		text = false
	}
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
			case n == 3 && c < 0x80 && next(20) == 0:
				b.Write([]byte{0xC0 | c>>6, 0x80 | c&0x3F})
				text = false
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
	return out, text
}

func TestEverySpellingOfAPathIsOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		canonical := []string{"/login", "/a/b", "/api/v1/users/42", "/x-y_z"}[random.IntN(4)]
		spelled, text := respell(canonical, random.IntN)
		got, err := httplimit.FoldAll.Fold(spelled)
		if text && (got != canonical || err != nil) {
			t.Fatalf("%q is %q, %v; want %q", spelled, got, err, canonical)
		}
		if !text && !errors.Is(err, httplimit.ErrBadKey) {
			t.Fatalf("%q is %q, %v; want ErrBadKey", spelled, got, err)
		}
	}
}

func FuzzPathFold(f *testing.F) {
	for _, seed := range []string{"/login", "/x/..;/login", "/%25%32%35", "/a//../b", "\xef\xbc", "/%uD800", "/;/. /\x85", "/%c0%af", "/a%3f/../b",
		"/a\u200c%2\u200b5", "/\xe2\u00ad\x80\x8b"} {
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
				strings.Contains(folded, "//") || strings.ContainsAny(folded, ";\\\x00?#\u200b\u200c\ufeff") {
				t.Fatalf("%v: %q is %q", fold, escaped, folded)
			}
			if again, err := fold.Fold(folded); err != nil || again != folded {
				t.Fatalf("%v: %q is %q, and then %q, %v", fold, escaped, folded, again, err)
			}
			for _, end := range []string{"%20", "%2520", "%3f1", "%23", "\u200b", "%c2%a0", "\xa0", "%85", "%ff"} {
				more, err := fold.Fold(escaped + end)
				if err == nil && more != folded || err != nil && !errors.Is(err, httplimit.ErrBadKey) {
					t.Fatalf("%v: %q is %q, and with %q at its end %q, %v", fold, escaped, folded, end, more, err)
				}
			}
		}
	})
}

func TestPathAsAKey(t *testing.T) {
	h := newMiddleware(t, newLimiter(t, newClock().store(), nil, sash.PerMinute(2)), httplimit.Path(httplimit.FoldAll), nil)(ok)
	statuses := func(paths ...string) (all []int) {
		for _, p := range paths {
			all = append(all, get(h, "GET", "/", func(r *http.Request) {
				u := must(url.ParseRequestURI(p))(t)
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
