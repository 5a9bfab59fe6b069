package outgoing

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A Sign is a field or a value in the JSON body of a response that says that, and how, a request was refused. The
// transport looks for signs in responses of status 429 and those of [Profile].AlsoRefused; the first sign of the
// profile that is found counts.
type Sign struct {
	// Field is the name of a header field. Empty means to look at Path.
	Field string
	// Path is the path of a value in the body: names with dots between them, such as "error.errors.reason".
	// It descends into each element of an array.
	Path string
	// Has are phrases, one of which a text has to contain, in any case. A number or a boolean has to be one of them, as
	// JSON writes it.
	Has []string
	// Means is the meaning of the refusal.
	Means Meaning
}

// A Meaning is the scope and duration of a refusal.
type Meaning uint8

// The meanings.
const (
	// TooFast is a refusal for the moment: the cool-down is that of the response, or [Profile].CoolDown.
	TooFast Meaning = iota
	// UsedUp is a quota with nothing left before its reset: the cool-down is that of the response, or
	// lasts until the profile's next reset.
	UsedUp
	// Everywhere is TooFast for all buckets of the [Call].Account.
	Everywhere
)

// signOf returns the meaning of a refusal by its signs.
func (p *Profile) signOf(res *http.Response) (means Meaning, found bool) {
	var body any // read when it is needed, because that may take time
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

// under reports whether the value at a path has the sign.
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
		return slices.Contains(s.Has, strconv.FormatFloat(v, 'f', -1, 64))
	case bool:
		return slices.Contains(s.Has, strconv.FormatBool(v))
	}
	return false
}

func (s *Sign) in(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(s.Has, func(phrase string) bool { return strings.Contains(text, strings.ToLower(phrase)) })
}

// mostPeeked is the most bytes of a body that are read to find signs.
const mostPeeked = 64 << 10

// peek decodes a JSON body and leaves it complete for the caller, who closes it. It returns nil for a body that
// is not JSON, or longer than mostPeeked.
func peek(res *http.Response) any {
	if res.Body == nil || res.Body == http.NoBody {
		return nil
	}
	start, err := io.ReadAll(io.LimitReader(res.Body, mostPeeked+1))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err} // the caller gets it at the same place
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), res.Body}
	var value any
	if err != nil || len(start) > mostPeeked || json.Unmarshal(start, &value) != nil {
		return nil
	}
	return value
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
