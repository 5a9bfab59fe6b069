// Package wire defines the answers of the service and the command line: a Go type each for a decision, a limit
// and an error. It also reads and writes HTTP bodies.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/service/internal/cause"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// The bounds of a request.
const (
	MaxBody    = 64 << 10 // bytes of its body
	MaxEntries = 32
)

// An Error is the answer to a request without a decision. Source and Cause are as in a Decision.
type Error struct {
	Error  string `json:"error"`
	Source string `json:"source,omitempty"`
	Cause  string `json:"cause,omitempty"`
}

// A Silence has the texts for a client whose request got no answer from the store.
type Silence struct {
	Unknown  string // the store was asked
	NotAsked string // it was not: the call failed before, or too many calls are in flight or wait
}

// Of returns the text for an error of the engine that is not a refusal, and the error's cause as in a Decision.
func (s *Silence) Of(err error) (text, why string) {
	switch why = cause.Of(err); why {
	case "down", "busy", "overload":
		if why != "overload" || !errors.Is(err, failover.ErrBudget) { // a call that had its turn but no answer may have reached the store
			return s.NotAsked, why
		}
	case "full":
		return "the store in memory is full and has no place for a new subject: there is no decision, and nothing was charged", why
	case "rejected":
		return "the store works and rejects this call, because the key holds something else: " +
			"there is no decision, and other keys are decided", why
	}
	return s.Unknown, why
}

// refusals are the engine's errors, with their status over HTTP and code over RESP. All other errors are failures of the store.
// So are, over HTTP, limits of a configuration or an override that the store cannot enforce: operators must learn of these.
var refusals = []struct {
	status int
	code   string
	errs   []error
}{
	{http.StatusBadRequest, "SASHCOST", []error{sash.ErrInvalidCost}},
	{http.StatusBadRequest, "ERR", []error{decide.ErrTwice, sash.ErrInvalidKey, sash.ErrInvalidID}},
	{http.StatusForbidden, "SASHTOKEN", []error{ErrToken}},
	{http.StatusNotFound, "SASHRULE", []error{config.ErrUnknownDomain}},
	{http.StatusConflict, "SASHTOKEN", []error{decide.ErrKept}},
	{http.StatusGone, "SASHTOKEN", []error{ErrExpired}},
	{http.StatusUnprocessableEntity, "SASHCOST", []error{sash.ErrCostAboveLimit}},
	{http.StatusUnprocessableEntity, "SASHRULE", []error{decide.ErrCountsRefused, decide.ErrNoQueue, decide.ErrNotLimited, decide.ErrParts}},
	{http.StatusServiceUnavailable, "SASHRULE", []error{config.ErrNone}},
	{0, "SASHRULE", []error{sash.ErrUnsupported}},
	{0, "ERR", []error{sash.ErrInvalidLimit}},
}

// Codes returns the HTTP status and the RESP code of an engine's error, or zeros.
func Codes(err error) (status int, code string) {
	for _, r := range refusals {
		if slices.ContainsFunc(r.errs, func(target error) bool { return errors.Is(err, target) }) {
			return r.status, r.code
		}
	}
	return 0, ""
}

// These are the texts for each kind of request that got no answer from the store.
var (
	Undecided = Silence{
		"the store did not answer: there is no decision, and whether the call was charged is not known",
		"the store was not asked: there is no decision, and nothing was charged",
	}
	Unseen    = Silence{"the store did not answer: there is no decision, and nothing was charged", Undecided.NotAsked}
	Unsettled = Silence{
		"the store did not answer: whether the reservation is settled is not known; send this again, it counts once",
		"the store was not asked: the reservation is not settled; send this again",
	}
	Unextended = Silence{
		"the store did not answer: whether the reservation was extended is not known; its charge has left after the window at the latest",
		"the store was not asked: the reservation is not extended; send this again",
	}
)

// Fail writes an Error.
func Fail(w http.ResponseWriter, status int, text string) { Write(w, status, Error{Error: text}) }

// Write writes a body as JSON.
func Write(w http.ResponseWriter, status int, body any) {
	b, _ := json.Marshal(body) // every body of the service can be marshalled
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // an error means that the client is gone
}

// A Subject names a subject by the domain and entries of its requests.
type Subject struct {
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
}

// Check returns an error that says what is missing or exceeds its bound.
func (s *Subject) Check() error {
	switch {
	case s.Domain == "":
		return errors.New("the domain is missing or empty")
	case len(s.Entries) == 0:
		return errors.New("entries are missing: give at least one key and value")
	case len(s.Entries) > MaxEntries:
		return fmt.Errorf("%d entries: there may be at most %d", len(s.Entries), MaxEntries)
	}
	for i, e := range s.Entries {
		if e.Key == "" {
			return fmt.Errorf("entry %d: the key is missing or empty", i+1)
		}
	}
	return nil
}

// Read reads a body of one JSON object with known fields. With describes the object for errors. Read answers a
// request with an invalid body itself, and then returns nil.
func Read[T any](w http.ResponseWriter, r *http.Request, with string) *T {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		Fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", MaxBody))
		return nil
	case err != nil:
		Fail(w, http.StatusBadRequest, "the body did not arrive")
		return nil
	case !utf8.Valid(body): // replacement characters would make different keys equal
		Fail(w, http.StatusBadRequest, "bad JSON: the body is not UTF-8")
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	var into *T
	if err = decoder.Decode(&into); err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err == nil {
		err = exact(body)
	}
	switch {
	case err != nil:
		Fail(w, http.StatusBadRequest, "bad JSON: "+explain(err))
		return nil
	case into == nil:
		Fail(w, http.StatusBadRequest, "bad JSON: send an object with "+with)
	}
	return into
}

// exact returns an error if valid JSON has a name twice in an object, or with capital letters, which no field
// has. Package json accepts both, and another reader of the body might use the other value.
func exact(body []byte) error {
	names := [][]string{nil} // of the open objects
	for i := 0; i < len(body); i++ {
		last := len(names) - 1
		switch body[i] {
		case '{':
			names = append(names, nil)
		case '}':
			names = names[:last]
		case '"':
			begin := i + 1
			for i = begin; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			name := string(body[begin:i])
			switch rest := bytes.TrimLeft(body[i+1:], " \t\r\n"); {
			case len(rest) == 0 || rest[0] != ':':
			case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "":
				return fmt.Errorf("unknown field %q: names are written in small letters", Clip(name))
			case slices.Contains(names[last], name):
				return fmt.Errorf("the field %q is there twice", name)
			default:
				names[last] = append(names[last], name)
			}
		}
	}
	return nil
}

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
	case errors.As(err, &kind):
		field := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
		if field == "cost" || field == "used" {
			return fmt.Sprintf("%s is %s: it must be a whole number", field, Clip(kind.Value))
		}
		return fmt.Sprintf("%s is a %s, which it must not be", field, Clip(kind.Value))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// Clip shortens a text from a request for an error.
func Clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// Text returns a pointer to the text, or nil for the empty one, which JSON writes as null.
func Text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

var origins = http.NewCrossOriginProtection()

// SameOrigin returns an error if a page of another origin sent a request that changes something. A browser sends it
// with the network access, cookies and certificates of its user. Programs send neither Origin nor Sec-Fetch-Site.
func SameOrigin(r *http.Request) error {
	if origins.Check(r) == nil {
		return nil
	}
	return errors.New("the request comes from a page of another origin, " +
		"or through a proxy that changes Host: it must hand it on, such as nginx with proxy_set_header Host $http_host")
}

// Pageless is SameOrigin for a port without pages. It also refuses pages of its own origin, whose host name
// meant another machine when the page was loaded (DNS rebinding). Over plain HTTP only Origin identifies them.
// Over HTTPS, where browsers send Sec-Fetch-Site, such a page would need a certificate for the name.
func Pageless(r *http.Request) error {
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	switch {
	case r.Header.Get("Origin") == "":
	case r.Method == http.MethodOptions:
		return errors.New("a page of another origin asks whether it may send a request: it may not")
	case !safe && r.Header.Get("Sec-Fetch-Site") == "":
		return errors.New("the request comes from a page in a browser, which sends Origin: only programs may send it")
	}
	return SameOrigin(r)
}
