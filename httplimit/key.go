package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"example.com/sash"
)

// A KeyFunc names the subject that a request is charged to. It may be called concurrently. Build keys
// with [sash.Key], which keeps different parts apart. The error [ErrExempt] means that the layer does
// not apply to this request, [ErrNoKey] that the request does not tell (an answer of 400); any other
// error is answered with 500. The ready ones begin with a word for their kind, so that an address and a
// header with the same text are different subjects.
type KeyFunc func(r *http.Request) (string, error)

var (
	// ErrExempt is returned by a KeyFunc for a request that its layer does not limit.
	ErrExempt = errors.New("httplimit: the request is exempt")
	// ErrNoKey is returned by a KeyFunc for a request without what the key is made of. [FirstOf] then
	// tries its next function.
	ErrNoKey = errors.New("httplimit: the request does not tell whom to charge")
)

// unusable is the KeyFunc of arguments that cannot be right: an error on every request, of which
// Options.OnError is told.
func unusable(format string, args ...any) KeyFunc {
	err := fmt.Errorf("httplimit: "+format, args...)
	return func(*http.Request) (string, error) { return "", err }
}

// unreadable says why a header of that name is never there.
func unreadable(name string) (why string, is bool) {
	switch {
	case name == "":
		return "a header needs a name", true
	case strings.EqualFold(name, "Host"):
		return "net/http keeps Host apart from the headers: take Request.Host in a KeyFunc of your own", true
	}
	return "", false
}

// Shared returns one key for all requests, for limits on everybody together.
func Shared(name string) KeyFunc {
	key := sash.Key("shared", name)
	return func(*http.Request) (string, error) { return key, nil }
}

// Header returns the value of a header as the key. Whoever can choose the header can choose the key: it
// has to come from something that you trust, such as your gateway. A request with no value, or with
// more than one, has no key. Host is not a header to net/http: that name is an error on every request, and so
// is an empty one.
func Header(name string) KeyFunc {
	if why, is := unreadable(name); is {
		return unusable("Header(%q): %s", name, why)
	}
	kind := strings.ToLower(name)
	return func(r *http.Request) (string, error) {
		value, err := single(r, name)
		if err != nil {
			return "", err
		}
		return sash.Key("header", kind, value), nil
	}
}

// APIKey returns the HMAC of the API key in a header, see [sash.Secret]: neither the store nor a log
// sees the API key. Of the header Authorization it takes the token of the scheme Bearer. A request
// without an API key has no key. An empty hmacKey is an error on every request, and so is a name that [Header]
// does not take.
//
// A client who makes up API keys makes up subjects. Authenticate first, or add a [Layer] per address.
func APIKey(header string, hmacKey []byte) KeyFunc {
	if why, is := unreadable(header); is {
		return unusable("APIKey(%q): %s", header, why)
	}
	if len(hmacKey) == 0 {
		return unusable("APIKey needs an HMAC key, such as 32 random bytes that all instances share")
	}
	bearer := strings.EqualFold(header, "Authorization")
	return func(r *http.Request) (string, error) {
		value, err := single(r, header)
		if err != nil {
			return "", err
		}
		if bearer {
			scheme, token, _ := strings.Cut(value, " ")
			value = strings.TrimSpace(token)
			if !strings.EqualFold(scheme, "Bearer") || value == "" {
				return "", fmt.Errorf("%w: the header Authorization has no bearer token", ErrNoKey)
			}
		}
		return sash.Key("apikey", sash.Secret(hmacKey, value)), nil
	}
}

// single returns the one value of a header. Of several, nobody knows which the application will use.
func single(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	if len(values) == 0 || strings.TrimSpace(values[0]) == "" {
		return "", fmt.Errorf("%w: no header %s", ErrNoKey, name)
	}
	if len(values) > 1 {
		return "", fmt.Errorf("%w: the header %s is there %d times", ErrNoKey, name, len(values))
	}
	return strings.TrimSpace(values[0]), nil
}

// User returns the authenticated user as the key. The function gets the request's context, where an
// authentication that ran before has put the user, and returns false when there is none. A nil function is an
// error on every request.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	if user == nil {
		return unusable("User needs a function that finds the user in the context")
	}
	return func(r *http.Request) (string, error) {
		id, ok := user(r.Context())
		if !ok || id == "" {
			return "", fmt.Errorf("%w: no authenticated user", ErrNoKey)
		}
		return sash.Key("user", id), nil
	}
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
		return unusable("PatternOf needs the mux that the requests go to")
	}
	return func(r *http.Request) (string, error) {
		_, pattern := mux.Handler(r)
		if pattern == "" {
			pattern = "none" // no pattern is spelled so: all have a slash
		}
		return sash.Key("route", pattern), nil
	}
}

// maxJoined leaves room for the names of a layer and a limiter in sash.MaxKeyLength.
const maxJoined = 300

// Join returns the keys of all functions as one, such as a user's requests to one route. The first
// error is the result. No function at all, or a nil one, is an error on every request.
func Join(keys ...KeyFunc) KeyFunc {
	if missing(keys) {
		return unusable("Join needs key functions, and none of them nil")
	}
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		joined := strings.Join(parts, ":")
		if len(joined) > maxJoined {
			joined = sash.Key(joined) // its digest
		}
		return joined, nil
	}
}

func missing(keys []KeyFunc) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(key KeyFunc) bool { return key == nil })
}

// FirstOf returns the first key that the request has: it goes on to the next function on [ErrNoKey],
// and on no other error. No function at all, or a nil one, is an error on every request.
func FirstOf(keys ...KeyFunc) KeyFunc {
	if missing(keys) {
		return unusable("FirstOf needs key functions, and none of them nil")
	}
	return func(r *http.Request) (string, error) {
		err := ErrNoKey
		for _, key := range keys {
			var found string
			if found, err = key(r); !errors.Is(err, ErrNoKey) {
				return found, err
			}
		}
		return "", err
	}
}

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
