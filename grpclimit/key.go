package grpclimit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"example.com/sash"
	"example.com/sash/middleware"
)

// A Call describes a call when it is charged.
type Call struct {
	// Context is the call's context. It has the peer, the metadata, and what earlier interceptors stored.
	Context context.Context
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Stream says whether the call is a stream, in either direction.
	Stream bool
	// Message is the request of a unary call, and nil for a stream. It must not be changed.
	Message any
}

// A KeyFunc returns the key of the subject that a call is charged to. See [middleware.KeyFunc]. [ErrNoKey] and
// [ErrBadKey] end the call with InvalidArgument. An error that carries a gRPC status, such as Unauthenticated, ends
// the call with that status, and any other is Internal.
type KeyFunc = middleware.KeyFunc[Call]

// A Layer limits calls by one subject. See [middleware.Layer]. An error of LimitsFor with a gRPC status chooses the status
// of the call, as that of a KeyFunc does.
type Layer = middleware.Layer[Call]

// The errors of a KeyFunc: see package middleware.
var (
	ErrExempt = middleware.ErrExempt
	ErrNoKey  = middleware.ErrNoKey
	ErrBadKey = middleware.ErrBadKey
)

// Shared returns one key for all calls, for limits on all clients together.
func Shared(name string) KeyFunc { return middleware.Shared[Call](name) }

// Method returns the full method as the key. A server with grpc.UnknownServiceHandler receives methods that
// its clients invent, each of them a subject.
func Method(call Call) (string, error) { return sash.Key("method", call.FullMethod), nil }

// Metadata returns a value of the incoming metadata as the key. Whoever can choose the value can choose the key, so it
// has to come from a trusted peer, such as your gateway, which replaces what the client sent. A call without a value, or
// with a blank one, has no key; several values are [ErrBadKey]. A comma is part of the value.
func Metadata(name string) KeyFunc { return field(name).Key() }

// APIKey returns the HMAC of the API key in a metadata value, as [middleware.Field.APIKey] does: neither the store nor a
// log sees the API key. A value whose name ends in "-bin" can have any bytes. An empty hmacKey is an error.
//
// A client that invents API keys invents subjects. Authenticate first, or add a [Layer] per address.
func APIKey(name string, hmacKey []byte) (KeyFunc, error) { return field(name).APIKey(hmacKey) }

func field(name string) middleware.Field[Call] {
	binary := strings.HasSuffix(strings.ToLower(name), "-bin")
	return middleware.Field[Call]{Kind: "metadata", Name: name, Binary: binary, Values: func(call Call) []string {
		return metadata.ValueFromIncomingContext(call.Context, name)
	}}
}

// User returns the authenticated user as the key. It calls the function with the call's context, where an
// interceptor that ran before has stored the user; the function returns false when there is none. A nil
// function is an error on every call.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	return middleware.User(func(call Call) context.Context { return call.Context }, user)
}

// Join combines the keys of all functions into one, such as a user's calls of one method. The first error
// is the result. No function at all, or a nil one, is an error on every call.
func Join(keys ...KeyFunc) KeyFunc { return middleware.Join(keys...) }

// FirstOf returns the first key that the call has. It goes on to the next function on [ErrNoKey], and on
// no other error, such as [ErrBadKey]. No function at all, or a nil one, is an error on every call.
func FirstOf(keys ...KeyFunc) KeyFunc { return middleware.FirstOf(keys...) }

// PeerAddress is a [KeyFunc]: the address at the other end of the connection, by its /64 for
// IPv6, without a zone, and as IPv4 if it is one. It reads no metadata. Behind a proxy all calls have the
// proxy's address. A peer without an address, as on a Unix socket, has no key.
func PeerAddress(call Call) (string, error) {
	p, ok := peer.FromContext(call.Context)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: the call has no peer", ErrNoKey)
	}
	withPort, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return "", fmt.Errorf("%w: the peer %q has no address", ErrNoKey, p.Addr)
	}
	return middleware.AddressKey(withPort.Addr().WithZone("").Unmap(), middleware.DefaultIPv6Bits), nil
}
