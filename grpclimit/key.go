package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"example.com/sash"
)

// A Call is what is known of a call when it is charged.
type Call struct {
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Target is what the client's connection leads to, as it was given to grpc.NewClient. It is empty
	// on a server.
	Target string
	// Stream says whether the call is a stream, in either direction.
	Stream bool
	// Message is the request of a unary call. Of a stream it is a received message when that is
	// charged, and nil at the stream's start. It must not be changed.
	Message any

	client bool // the metadata is the outgoing one
}

// A KeyFunc names the subject that a call is charged to. It may be called concurrently. Build keys with
// [sash.Key], which keeps different parts apart. The error [ErrExempt] means that the call is not
// limited, [ErrNoKey] that it does not tell whom to charge (InvalidArgument); an error that carries a gRPC
// status, such as Unauthenticated, ends the call with that status, and any other is Internal. The ready
// ones begin with a word for their kind, so that an address and a metadata value with the same text are
// different subjects.
type KeyFunc func(ctx context.Context, call Call) (string, error)

var (
	// ErrExempt is returned by a KeyFunc for a call that is not limited.
	ErrExempt = errors.New("grpclimit: the call is exempt")
	// ErrNoKey is returned by a KeyFunc for a call without what the key is made of. [FirstOf] then tries
	// its next function.
	ErrNoKey = errors.New("grpclimit: the call does not tell whom to charge")
)

// unusable is the KeyFunc of arguments that cannot be right: an error on every call, of which OnError is told.
func unusable(text string) KeyFunc {
	err := errors.New("grpclimit: " + text)
	return func(context.Context, Call) (string, error) { return "", err }
}

// Shared returns one key for all calls, for limits on everybody together.
func Shared(name string) KeyFunc {
	key := sash.Key("shared", name)
	return func(context.Context, Call) (string, error) { return key, nil }
}

// Method returns the full method as the key. A server with grpc.UnknownServiceHandler sees methods that
// its clients make up, each of them a subject.
func Method(_ context.Context, call Call) (string, error) {
	return sash.Key("method", call.FullMethod), nil
}

// Target returns the target of the client's connection as the key. A server has none.
func Target(_ context.Context, call Call) (string, error) {
	if call.Target == "" {
		return "", fmt.Errorf("%w: only a client's call has a target", ErrNoKey)
	}
	return sash.Key("target", call.Target), nil
}

// Metadata returns a metadata value as the key: of the incoming metadata on a server, of the outgoing on
// a client. Whoever can choose the value can choose the key: it has to come from something that you
// trust, such as your gateway. A call with no value, or with more than one, has no key.
func Metadata(name string) KeyFunc {
	name = strings.ToLower(name)
	return func(ctx context.Context, call Call) (string, error) {
		value, err := single(ctx, call, name)
		if err != nil {
			return "", err
		}
		return sash.Key("metadata", name, value), nil
	}
}

// APIKey returns the HMAC of the API key in a metadata value, see [sash.Secret]: neither the store nor a
// log sees the API key. Of "authorization" it takes the token of the scheme Bearer. A call without an API
// key has no key. An empty hmacKey is an error on every call.
//
// A client who makes up API keys makes up subjects. Authenticate first, or add a second interceptor
// with a limit per address before this one.
func APIKey(name string, hmacKey []byte) KeyFunc {
	if len(hmacKey) == 0 {
		return unusable("APIKey needs an HMAC key, such as 32 random bytes that all instances share")
	}
	name = strings.ToLower(name)
	return func(ctx context.Context, call Call) (string, error) {
		value, err := single(ctx, call, name)
		if err != nil {
			return "", err
		}
		if name == "authorization" {
			scheme, token, _ := strings.Cut(value, " ")
			value = strings.TrimSpace(token)
			if !strings.EqualFold(scheme, "Bearer") || value == "" {
				return "", fmt.Errorf("%w: the metadata authorization has no bearer token", ErrNoKey)
			}
		}
		return sash.Key("apikey", sash.Secret(hmacKey, value)), nil
	}
}

// single returns the one value of a name. Of several, nobody knows which the application will use.
func single(ctx context.Context, call Call, name string) (string, error) {
	var values []string
	if call.client {
		md, _ := metadata.FromOutgoingContext(ctx)
		values = md.Get(name)
	} else {
		values = metadata.ValueFromIncomingContext(ctx, name)
	}
	if len(values) == 0 || strings.TrimSpace(values[0]) == "" {
		return "", fmt.Errorf("%w: no metadata %s", ErrNoKey, name)
	}
	if len(values) > 1 {
		return "", fmt.Errorf("%w: the metadata %s is there %d times", ErrNoKey, name, len(values))
	}
	return strings.TrimSpace(values[0]), nil
}

// User returns the authenticated user as the key. The function gets the call's context, where an
// interceptor that ran before has put the user, and returns false when there is none. A nil function is an error
// on every call.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	if user == nil {
		return unusable("User needs a function that finds the user in the context")
	}
	return func(ctx context.Context, _ Call) (string, error) {
		id, ok := user(ctx)
		if !ok || id == "" {
			return "", fmt.Errorf("%w: no authenticated user", ErrNoKey)
		}
		return sash.Key("user", id), nil
	}
}

// maxJoined leaves room for the limiter's prefix in sash.MaxKeyLength.
const maxJoined = 300

// Join returns the keys of all functions as one, such as a user's calls of one method. The first error
// is the result. No function at all, or a nil one, is an error on every call.
func Join(keys ...KeyFunc) KeyFunc {
	if missing(keys) {
		return unusable("Join needs key functions, and none of them nil")
	}
	return func(ctx context.Context, call Call) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			part, err := key(ctx, call)
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

// FirstOf returns the first key that the call has: it goes on to the next function on [ErrNoKey], and on
// no other error. No function at all, or a nil one, is an error on every call.
func FirstOf(keys ...KeyFunc) KeyFunc {
	if missing(keys) {
		return unusable("FirstOf needs key functions, and none of them nil")
	}
	return func(ctx context.Context, call Call) (string, error) {
		err := ErrNoKey
		for _, key := range keys {
			var found string
			if found, err = key(ctx, call); !errors.Is(err, ErrNoKey) {
				return found, err
			}
		}
		return "", err
	}
}
