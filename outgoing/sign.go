package outgoing

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Sign is something in an answer that says that, and how, a request was refused: a field, or a value in
// a JSON body. It is looked for in answers of status 429 and those of [Profile].AlsoRefused; of several
// that are there the first of the profile counts.
type Sign struct {
	// Field is the name of a header field. Empty means that Path is looked at.
	Field string
	// Path leads to a value in the body: names with dots between them, such as "error.errors.reason".
	// Each element of an array is looked at.
	Path string
	// Has are words, of which the value has one: whole words, in any case, so that "4" is not found in
	// "14" and "rate limit" is found in a sentence. Numbers and booleans are compared as they are written.
	Has []string
	// Means is what it says.
	Means Meaning
}

// A Meaning is what a refusal is about.
type Meaning uint8

// The meanings.
const (
	// TooFast is a refusal for the moment: the cool-down is what the answer says, or [Profile].CoolDown.
	TooFast Meaning = iota
	// UsedUp is a quota of which nothing is left before its reset: the cool-down is what the answer
	// says, or lasts until the profile's next reset.
	UsedUp
	// Everywhere is TooFast for all buckets of the [Call].Account.
	Everywhere
)

// signOf returns what a refusal says of itself, if it does.
func (p *Profile) signOf(res *http.Response) (means Meaning, found bool) {
	var body any // nothing until it is needed, because reading it may have to wait
	read := false
	for _, s := range p.Signs {
		if s.Field != "" {
			if s.in(get(res.Header, s.Field)) {
				return s.Means, true
			}
			continue
		}
		if !read {
			body, read = peek(res), true
		}
		if s.under(body, strings.Split(s.Path, ".")) {
			return s.Means, true
		}
	}
	return TooFast, false
}

// under looks for the sign in what a path leads to.
func (s *Sign) under(value any, path []string) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return s.under(element, path) })
	case map[string]any:
		return len(path) > 0 && s.under(v[path[0]], path[1:])
	}
	if len(path) > 0 {
		return false
	}
	switch v := value.(type) {
	case string:
		return s.in(v)
	case float64:
		return s.in(strconv.FormatFloat(v, 'f', -1, 64))
	case bool:
		return s.in(strconv.FormatBool(v))
	}
	return false
}

func (s *Sign) in(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(s.Has, func(words string) bool { return hasWords(text, strings.ToLower(words)) })
}

func hasWords(text, words string) bool {
	if words == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(text[from:], words)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:from+i])
		after, _ := utf8.DecodeRuneInString(text[from+i+len(words):])
		if !inWord(before) && !inWord(after) {
			return true
		}
		from += i + 1
	}
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// mostPeeked is the most of a body that is read to see why a request was refused.
const mostPeeked = 64 << 10

// peek decodes a JSON body and leaves it as it was: whole, from its start, and to be closed by the caller.
// It returns nil for what is not JSON, or longer than mostPeeked.
func peek(res *http.Response) any {
	if res.Body == nil || res.Body == http.NoBody {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(res.Body, mostPeeked+1))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err} // the caller learns of it where it happened
	}
	res.Body = &replayed{io.MultiReader(bytes.NewReader(start), rest), res.Body}
	var value any
	if err != nil || len(start) > mostPeeked || json.Unmarshal(start, &value) != nil {
		return nil
	}
	return value
}

// replayed is a body whose start was read before.
type replayed struct {
	io.Reader
	io.Closer
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
