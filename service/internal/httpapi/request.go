package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// Bounds of a request.
const (
	maxBody    = 64 << 10
	maxEntries = 32
)

// A request is the body of POST /v1/allow, /v1/peek, /v1/reserve and /v1/explain.
type request struct {
	// Domain names the application.
	Domain string `json:"domain"`
	// Entries are looked up in the configuration, one level each.
	Entries []config.Entry `json:"entries"`
	// Cost is the units asked for; without one it is the matching rule's, which is 1 by default.
	Cost *int64 `json:"cost"`
	// ID names the request, so that it can be repeated and is charged once. Nil is none. What charges nothing
	// takes no notice of it.
	ID *string `json:"id"`
}

// id returns the ID, or "" for none.
func (r *request) id() string {
	if r.ID == nil {
		return ""
	}
	return *r.ID
}

// A problem is what is wrong with a request.
type problem struct {
	status int
	text   string
}

func bad(format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// read reads the body of a request that asks about entries.
func read(w http.ResponseWriter, r *http.Request) (*request, *problem) {
	req, p := readAs[request](w, r, "domain and entries")
	if p != nil {
		return nil, p
	}
	if p := checkSubject(req.Domain, req.Entries); p != nil {
		return nil, p
	}
	if req.ID != nil && (*req.ID == "" || len(*req.ID) > decide.MaxIDLength) {
		return nil, bad("the id has %d bytes: it must have 1 to %d", len(*req.ID), decide.MaxIDLength)
	}
	return req, nil
}

// checkSubject refuses a domain or entries that are missing or too many.
func checkSubject(domain string, entries []config.Entry) *problem {
	switch {
	case domain == "":
		return bad("the domain is missing or empty")
	case len(entries) == 0:
		return bad("entries are missing: give at least one key and value")
	case len(entries) > maxEntries:
		return bad("%d entries: there may be at most %d", len(entries), maxEntries)
	}
	for i, e := range entries {
		if e.Key == "" {
			return bad("entry %d: the key is missing or empty", i+1)
		}
	}
	return nil
}

// readAs reads a body of one JSON object; with says what is in it.
func readAs[T any](w http.ResponseWriter, r *http.Request, with string) (*T, *problem) {
	if p := checkContent(r.Header); p != nil {
		return nil, p
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	case err != nil:
		return nil, bad("the body did not arrive")
	case !utf8.Valid(body): // it would be read as replacement characters, and keys would no longer differ
		return nil, bad("bad JSON: the body is not UTF-8")
	}
	req, err := decode[T](body)
	switch {
	case err != nil:
		return nil, bad("bad JSON: %s", explain(err))
	case req == nil:
		return nil, bad("bad JSON: send an object with %s", with)
	}
	return req, nil
}

// checkContent refuses a body that says it is not JSON. Nothing said is taken for JSON, and so is a
// form, which is what curl -d says of anything.
func checkContent(header http.Header) *problem {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &problem{http.StatusUnsupportedMediaType, "the body must not be encoded; this one says " + clip(coding)}
	}
	given := header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json") || kind == "application/x-www-form-urlencoded") {
		return nil
	}
	return &problem{http.StatusUnsupportedMediaType, "the body must be application/json; this one says " + clip(given)}
}

// decode reads one object with known fields, and nothing after it.
func decode[T any](body []byte) (req *T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&req); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return req, nil
}

// explain puts a decoding error into the words of the sender.
func explain(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body ends in the middle"
	case errors.As(err, &syntax):
		return fmt.Sprintf("%v at byte %d", syntax, syntax.Offset)
	case errors.As(err, &kind) && kind.Field == "":
		return "a " + kind.Value + " where an object is wanted"
	case errors.As(err, &kind) && (kind.Field == "cost" || kind.Field == "used"):
		return fmt.Sprintf("%s is %s: it must be a whole number", kind.Field, clip(kind.Value))
	case errors.As(err, &kind):
		return fmt.Sprintf("%s is a %s, which it must not be", kind.Field, clip(kind.Value))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
