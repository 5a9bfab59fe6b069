package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"example.com/sash"
)

// A KeyFunc returns the key of the subject that a request is charged to. It may be called concurrently. Build keys
// with [sash.Key], which keeps parts apart. A KeyFunc returns [ErrExempt] for a request that is not limited,
// [ErrNoKey] if the request does not identify its subject, and [ErrBadKey] if it does so twice or in a malformed way.
// Any other error is a fault of the application. In this package, keys start with a word for their kind, so that an
// address and a header with the same text are different subjects. An empty key is an error.
type KeyFunc[R any] func(R) (string, error)

var (
	// ErrExempt is the error of a KeyFunc for a request that it does not limit.
	ErrExempt = errors.New("sash: the request is exempt")
	// ErrNoKey is the error of a KeyFunc for a request that lacks the parts of the key. [FirstOf] then tries
	// its next function.
	ErrNoKey = errors.New("sash: the request does not identify its subject")
	// ErrBadKey is the error of a KeyFunc for a request whose key is ambiguous or malformed, such as two API
	// keys. [FirstOf] does not try its next function: the application may accept such a request, and the caller
	// could then choose the subject.
	ErrBadKey = errors.New("sash: the request identifies its subject more than once, or in a form that is not valid")
)

// Invalid returns a KeyFunc that fails every request, for arguments that can never work. The reason says why.
func Invalid[R any](reason string) KeyFunc[R] {
	err := errors.New(reason)
	return func(R) (string, error) { return "", err }
}

// Shared returns one key for all requests, for limits on all clients together.
func Shared[R any](name string) KeyFunc[R] {
	key := sash.Key("shared", name)
	return func(R) (string, error) { return key, nil }
}

// User returns the authenticated user as the key. The user function reads it from the request's context, where an
// authentication stored it, and returns false if there is none. A nil user fails every request.
func User[R any](contextOf func(R) context.Context, user func(context.Context) (id string, ok bool)) KeyFunc[R] {
	if user == nil {
		return Invalid[R]("sash: User needs a function that finds the user in the context")
	}
	return func(r R) (string, error) {
		id, ok := user(contextOf(r))
		if !ok || id == "" {
			return "", fmt.Errorf("%w: no authenticated user", ErrNoKey)
		}
		return sash.Key("user", id), nil
	}
}

// A Field is a named value that clients send with a request, such as an HTTP header.
type Field[R any] struct {
	// Kind is the protocol's word for such a field, such as "header". Keys start with it.
	Kind string
	// Name is the field's name. Keys have it in lower case.
	Name string
	// Values returns all values of the field.
	Values func(R) []string
	// Binary says that values are bytes rather than text, as in gRPC metadata whose name ends in "-bin".
	Binary bool
}

// Key returns the field's value as the key. A client that can choose the value can choose the key, so it must
// come from a trusted peer, such as a gateway that replaces what the client sent. A request with no value or a
// blank one has no key. Several values are [ErrBadKey]. A comma is part of the value.
func (f Field[R]) Key() KeyFunc[R] {
	name := strings.ToLower(f.Name)
	return func(r R) (string, error) {
		value, err := f.single(r)
		if err != nil {
			return "", err
		}
		return sash.Key(f.Kind, name, value), nil
	}
}

// APIKey returns the HMAC of the API key in the field: see [sash.Secret]. Neither the store nor a log receives
// the API key. From a field "authorization" it takes the token of the scheme Bearer. A request without an API
// key, or with another scheme, has no key. Several values are [ErrBadKey]. So is a value that an application
// could read in two ways: with a comma, with which proxies join values, with bytes that are not printable ASCII
// (unless Binary), or without a scheme. An empty hmacKey is an error, because the application may have failed
// to configure it.
func (f Field[R]) APIKey(hmacKey []byte) (KeyFunc[R], error) {
	if len(hmacKey) == 0 {
		return nil, errors.New("sash: APIKey needs an HMAC key, such as 32 random bytes that all instances share")
	}
	bearer := strings.EqualFold(f.Name, "authorization")
	return func(r R) (string, error) {
		value, err := f.single(r)
		if err != nil {
			return "", err
		}
		if bearer {
			value, err = f.bearerToken(value)
		} else if !f.Binary && !unambiguous(value) {
			err = fmt.Errorf("%w: the %s %s has a comma or a character that is not printable ASCII", ErrBadKey, f.Kind, f.Name)
		}
		if err != nil {
			return "", err
		}
		return sash.Key("apikey", sash.Secret(hmacKey, value)), nil
	}, nil
}

// single returns the field's only value. If there are several, it cannot know which one the application uses.
func (f Field[R]) single(r R) (string, error) {
	values := f.Values(r)
	if len(values) > 1 {
		return "", fmt.Errorf("%w: the %s %s has %d values", ErrBadKey, f.Kind, f.Name, len(values))
	}
	if len(values) == 0 || strings.TrimSpace(values[0]) == "" {
		return "", fmt.Errorf("%w: no %s %s", ErrNoKey, f.Kind, f.Name)
	}
	return strings.TrimSpace(values[0]), nil
}

// bearerToken returns the token of "Bearer token". Another scheme with its parameters is no key. Anything else
// that a lenient application could treat as a bearer token is a bad key.
func (f Field[R]) bearerToken(value string) (string, error) {
	words := strings.FieldsFunc(value, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' })
	isBearer := func(word string) bool { return strings.EqualFold(word, "Bearer") }
	switch {
	case len(words) == 2 && isBearer(words[0]) && unambiguous(value):
		return words[1], nil
	case len(words) < 2 || slices.ContainsFunc(words, isBearer):
		return "", fmt.Errorf("%w: the %s %s is not a scheme and one token, such as Bearer abc", ErrBadKey, f.Kind, f.Name)
	}
	return "", fmt.Errorf("%w: the %s %s has no bearer token", ErrNoKey, f.Kind, f.Name)
}

// unambiguous reports whether value has only printable ASCII, and no comma.
func unambiguous(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' || c == ',' })
}

// DefaultIPv6Bits is the length of the IPv6 prefix that counts as one client. Providers usually give a network
// of that size to one customer.
const DefaultIPv6Bits = 64

// Client returns the client that an address belongs to: an IPv4 address, also from an IPv4-mapped one, or an
// IPv6 prefix of ipv6Bits, which are 1 to 128. It drops the zone.
func Client(addr netip.Addr, ipv6Bits int) string { return string(appendClient(nil, addr, ipv6Bits)) }

// AddressKey returns the key of the [Client] of an address.
func AddressKey(addr netip.Addr, ipv6Bits int) string {
	var room [64]byte // the longest is 43 characters
	return sash.Key("addr", string(appendClient(room[:0], addr, ipv6Bits)))
}

func appendClient(to []byte, addr netip.Addr, ipv6Bits int) []byte {
	addr = addr.WithZone("").Unmap()
	if addr.Is4() || ipv6Bits == 128 {
		return addr.AppendTo(to)
	}
	return netip.PrefixFrom(addr, ipv6Bits).Masked().AppendTo(to)
}

// maxJoined leaves room for the names of a layer and a limiter in sash.MaxKeyLength.
const maxJoined = 300

// Join combines the keys of all functions into one, such as a user's calls of one method. It returns the first
// error. Without functions, or with a nil one, it fails every request.
func Join[R any](keys ...KeyFunc[R]) KeyFunc[R] {
	if missing(keys) {
		return Invalid[R]("sash: Join needs key functions, and none of them nil")
	}
	return func(r R) (string, error) {
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

// FirstOf returns the first key that the request has. On [ErrNoKey] it tries the next function. It returns any
// other error, such as [ErrBadKey]. Without functions, or with a nil one, it fails every request.
func FirstOf[R any](keys ...KeyFunc[R]) KeyFunc[R] {
	if missing(keys) {
		return Invalid[R]("sash: FirstOf needs key functions, and none of them nil")
	}
	return func(r R) (string, error) {
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

func missing[R any](keys []KeyFunc[R]) bool {
	return len(keys) == 0 || slices.ContainsFunc(keys, func(key KeyFunc[R]) bool { return key == nil })
}
