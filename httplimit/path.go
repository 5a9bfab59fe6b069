package httplimit

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A PathFold says which spellings of a path count as one. If a handler, or a server behind it, treats two
// spellings as one path, they must count as one: otherwise /LOGIN evades the limit of /login. Folding more than
// the server does is safe unless some path has a more generous limit: /health;slug has the limit of /health,
// but may reach another handler. If limits differ by path, reject such spellings in front, or use [Pattern].
type PathFold uint8

// The ways to fold paths. All of them decode the path, join slashes, and follow dot segments.
const (
	// FoldAll folds like KeepCase and lowers the case, like IIS and the file systems of Windows and macOS. It
	// does not fold Windows short names (/LOGIN~1), stream names (/login::$DATA), or text after a script's name
	// (/login.php/x): reject those in front.
	FoldAll PathFold = iota
	// KeepCase keeps the case of letters. A segment ends at a semicolon (Tomcat, Jetty, Spring), and loses
	// spaces around it and dots after it (Windows). A backslash is a slash (IIS). Nested encodings are decoded:
	// %25, %u002F, full-width forms. The path ends at an encoded question mark or number sign, since a server
	// behind a decoding one sees it plain. Invisible characters are dropped. A path is [ErrBadKey] if servers
	// disagree on where a parent directory leads, as in /x/..;/a and /x/%252e%252e/a, or if it has a zero byte
	// or bytes that are not UTF-8, such as a lone %E9. Browsers send none of these, except from a Latin-1 link.
	KeepCase
	// CleanOnly decodes once, joins slashes and follows dot segments. It suits a server that gives different
	// answers to /a and /a;b.
	CleanOnly
)

var pathFoldNames = [...]string{FoldAll: "all", KeepCase: "keep-case", CleanOnly: "clean"}

// String returns "all", "keep-case" or "clean".
func (f PathFold) String() string {
	if int(f) < len(pathFoldNames) {
		return pathFoldNames[f]
	}
	return fmt.Sprintf("PathFold(%d)", uint8(f))
}

// UnmarshalText reads the name of a PathFold.
func (f *PathFold) UnmarshalText(text []byte) error {
	i := slices.Index(pathFoldNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("httplimit: unknown fold of paths %.40q; there are %s", text, strings.Join(pathFoldNames[:], ", "))
	}
	*f = PathFold(i)
	return nil
}

// Path returns the request's folded path as the key: see [PathFold]. Once a router has matched the request, its
// pattern is the better key: see [Pattern]. The pattern names the handler that runs, however the path is
// spelled. Clients can invent paths, and each is a new subject, but they cannot invent patterns.
func Path(fold PathFold) KeyFunc {
	if int(fold) >= len(pathFoldNames) {
		return middleware.Invalid[*http.Request](fmt.Sprintf("httplimit: Path(%v): there is no such fold", fold))
	}
	return func(r *http.Request) (string, error) {
		folded, err := fold.Fold(r.URL.EscapedPath())
		if err != nil {
			return "", err
		}
		return sash.Key("path", folded), nil
	}
}

// Fold returns the folded form of a request's path. The argument is encoded and has no query. The result begins
// with a slash, is decoded, and has no slash at the end unless it is the root. Under FoldAll and KeepCase,
// folding the result again changes nothing. The error is [ErrBadKey]; CleanOnly returns none.
func (f PathFold) Fold(escaped string) (string, error) {
	if f == CleanOnly {
		if decoded, err := url.PathUnescape(escaped); err == nil {
			escaped = decoded
		}
		return path.Clean("/" + escaped), nil
	}
	decoded, err := text(escaped)
	if err != nil {
		return "", err
	}
	before, after := decoded, ""
	if i := strings.IndexAny(decoded, "?#"); i >= 0 {
		before = decoded[:i]
		_, after, _ = strings.Cut(decoded[i:], "/")
	}
	var kept []string
	parents, vanished := 0, false
	for segment := range strings.SplitSeq(strings.Trim(before, "/"), "/") {
		segment = name(segment)
		if segment == ".." {
			parents++
			kept = kept[:max(len(kept)-1, 0)]
			continue
		}
		segment = strings.TrimRightFunc(segment, func(c rune) bool { return c == '.' || blank(c) })
		if segment == "" {
			vanished = true
			continue
		}
		kept = append(kept, segment)
	}
	lost := false // in what a server may treat as the query
	for segment := range strings.SplitSeq(after, "/") {
		lost = lost || name(segment) == ".."
	}
	// If servers disagree on the segments before a parent directory, they disagree on which one it removes.
	if lost || parents > 0 && (vanished || parents != plainParents(escaped) || strings.Count(decoded, "/") != strings.Count(escaped, "/")) {
		return "", fmt.Errorf("%w: where the path's parent directories lead depends on the server", ErrBadKey)
	}
	folded := "/" + strings.Join(kept, "/")
	if f == FoldAll {
		return strings.Map(foldCase, folded), nil
	}
	return folded, nil
}

// text decodes a path and drops its invisible characters. Bytes that are not UTF-8 are an error: servers treat
// them as Latin-1, drop them, or decode them anyway, so no key is right for all servers.
func text(escaped string) (string, error) {
	decoded := decodeAll(escaped)
	if !utf8.ValidString(decoded) {
		return "", fmt.Errorf("%w: the path is not UTF-8", ErrBadKey)
	}
	seen := strings.Map(func(c rune) rune {
		if invisible(c) {
			return -1
		}
		return c
	}, decoded)
	if len(seen) < len(decoded) && decodeAll(seen) != seen {
		return "", fmt.Errorf("%w: the path has an invisible character in an encoding", ErrBadKey)
	}
	if strings.Contains(seen, "\x00") {
		return "", fmt.Errorf("%w: the path has a zero byte", ErrBadKey)
	}
	return strings.ReplaceAll(seen, `\`, "/"), nil
}

// name returns a segment without its parameters and the spaces around it.
func name(segment string) string {
	segment, _, _ = strings.Cut(segment, ";")
	return strings.TrimFunc(segment, blank)
}

func blank(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }

// invisible reports whether file systems that fold case may ignore the character.
func invisible(c rune) bool {
	return c >= utf8.RuneSelf && unicode.In(c, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

func foldCase(c rune) rune { return unicode.ToLower(unicode.ToUpper(c)) }

// plainParents counts the segments that every server treats as the parent directory.
func plainParents(escaped string) (n int) {
	for segment := range strings.SplitSeq(escaped, "/") {
		if len(segment) <= len("%2e%2e") && strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") == ".." {
			n++
		}
	}
	return n
}

// decodeAll decodes a path in one pass until nothing is encoded. When a byte completes an encoding, decodeAll
// replaces the encoding with the bytes that it stands for, which may complete another encoding.
func decodeAll(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		out = append(out, s[i])
		for {
			n, c := encoding(out)
			if n == 0 {
				break
			}
			out = out[:len(out)-n]
			if n == 3 { // one byte, perhaps of a multi-byte character
				out = append(out, byte(c))
			} else {
				out = utf8.AppendRune(out, c)
			}
		}
	}
	return string(out)
}

// encoding returns the length of the encoding at the end of out, and the byte or character that it stands for.
func encoding(out []byte) (n int, c rune) {
	for _, n = range [...]int{3, 6} {
		if len(out) < n {
			break
		}
		t := out[len(out)-n:]
		ok := false
		switch {
		case n == 3 && t[0] == '%':
			c, ok = hex(t[1:])
		case n == 6 && t[0] == '%' && t[1]|0x20 == 'u':
			c, ok = hex(t[2:])
			ok = ok && utf8.ValidRune(c)
		case n == 3 && t[0] == 0xEF: // full-width forms of ASCII
			c, _ = utf8.DecodeRune(t)
			c, ok = c-'\uFF01'+'!', '\uFF01' <= c && c <= '\uFF5E'
		}
		if ok {
			return n, c
		}
	}
	return 0, 0
}

func hex(digits []byte) (c rune, ok bool) {
	n, err := strconv.ParseUint(string(digits), 16, 32)
	return rune(n), err == nil
}
