package htmlreport

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown returns a name from a log as a page can show it: visible, and at most 200 characters.
func shown(name string) string {
	const most = 200
	n := 0
	for i := range name {
		if n++; n > most {
			return visible(name[:i]) + "…"
		}
	}
	return visible(name)
}

// visible returns text in which what is not visible (controls, marks that turn the direction of the text, bytes that are
// no UTF-8) is written as in a Go string. It does not escape HTML.
func visible(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(strings.Trim(strconv.Quote(text[i:i+1]), `"`))
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), `'`))
		}
		i += size
	}
	return b.String()
}

// Number writes a number with a comma between thousands, as the page does.
func Number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
