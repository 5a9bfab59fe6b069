package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A KeyFunc returns the key of the subject that a request is charged to. See [middleware.KeyFunc]. [ErrNoKey] and
// [ErrBadKey] are answered with 400, any other error but [ErrExempt] with 500.
type KeyFunc = middleware.KeyFunc[*http.Request]

// The errors of a KeyFunc: see package middleware.
var (
	ErrExempt = middleware.ErrExempt
	ErrNoKey  = middleware.ErrNoKey
	ErrBadKey = middleware.ErrBadKey
)

// invalid returns a KeyFunc that fails every request.
func invalid(format string, args ...any) KeyFunc {
	return middleware.Invalid[*http.Request](fmt.Sprintf("httplimit: "+format, args...))
}

// absent says why a header of that name is never there.
func absent(name string) (why string, is bool) {
	switch {
	case name == "":
		return "a header needs a name", true
	case strings.EqualFold(name, "Host"):
		return "net/http keeps Host apart from the headers: read Request.Host in a KeyFunc of your own", true
	}
	return "", false
}

func field(name string) middleware.Field[*http.Request] {
	return middleware.Field[*http.Request]{Kind: "header", Name: name, Values: func(r *http.Request) []string {
		return r.Header.Values(name)
	}}
}

// Shared returns one key for all requests, for limits on all clients together.
func Shared(name string) KeyFunc { return middleware.Shared[*http.Request](name) }

// Header returns the value of a header as the key. Whoever can choose the header can choose the key, so it
// has to come from a trusted peer, such as your gateway, which replaces what the client sent. A request
// without a value, or with a blank one, has no key; several values are [ErrBadKey]. A comma is part of the
// value. net/http does not keep Host among the headers: that name is an error on every request, and so is
// an empty one.
func Header(name string) KeyFunc {
	if why, is := absent(name); is {
		return invalid("Header(%q): %s", name, why)
	}
	return field(name).Key()
}

// APIKey returns the HMAC of the API key in a header, as [middleware.Field.APIKey] does: neither the store nor a log
// sees the API key. The error is for an empty hmacKey, and for a name that [Header] does not take.
//
// A client that invents API keys invents subjects. Authenticate first, or add a [Layer] per address.
func APIKey(header string, hmacKey []byte) (KeyFunc, error) {
	if why, is := absent(header); is {
		return nil, fmt.Errorf("httplimit: APIKey(%q): %s", header, why)
	}
	return field(header).APIKey(hmacKey)
}

// User returns the authenticated user as the key. It calls the function with the request's context, where an
// authentication that ran before has stored the user; the function returns false when there is none. A nil
// function is an error on every request.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	return middleware.User((*http.Request).Context, user)
}

// Pattern returns the pattern that the router matched, such as "GET /items/{id}", as the key: one
// subject a route, however many paths it has. The middleware has to run behind the router: around a
// handler given to http.ServeMux, or with chi's With. In front of a ServeMux use [PatternOf].
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errors.New("httplimit: the request has no pattern: put the middleware behind the router, or use PatternOf")
	}
	return sash.Key("route", r.Pattern), nil
}

// PatternOf returns the pattern that mux will match as the key, for a middleware in front of it.
// Requests that match none share a key. A nil mux is an error on every request.
func PatternOf(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return invalid("PatternOf needs the mux that the requests go to")
	}
	return func(r *http.Request) (string, error) {
		_, pattern := mux.Handler(r)
		pattern = cmp.Or(pattern, "none") // cannot be a pattern: all have a slash
		return sash.Key("route", pattern), nil
	}
}

// Join combines the keys of all functions into one, such as a user's requests to one route. The first
// error is the result. No function at all, or a nil one, is an error on every request.
func Join(keys ...KeyFunc) KeyFunc { return middleware.Join(keys...) }

// FirstOf returns the first key that the request has. It goes on to the next function on [ErrNoKey],
// and on no other error, such as [ErrBadKey]. No function at all, or a nil one, is an error on every request.
func FirstOf(keys ...KeyFunc) KeyFunc { return middleware.FirstOf(keys...) }

// Reads reports whether the request's method promises to change nothing (GET, HEAD, OPTIONS, TRACE):
// for Layer.Match.
func Reads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "":
		return true
	}
	return false
}

// Writes reports the opposite of [Reads].
func Writes(r *http.Request) bool { return !Reads(r) }
