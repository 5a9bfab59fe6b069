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
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Target is what the client's connection leads to, as it was given to grpc.NewClient. It is empty
	// on a server.
	Target string
	// Stream says whether the call is a stream, in either direction.
	Stream bool
	// Message is the request of a unary call. Of a stream it is the received message that is charged, and
	// nil at the stream's start. It must not be changed.
	Message any

	client bool // the metadata is the outgoing one
}

// A KeyFunc returns the key of the subject that a call is charged to. It may be called concurrently. Build
// keys with [sash.Key], which keeps different parts apart. The error [ErrExempt] means that the call is not
// limited, [ErrNoKey] that it does not identify its subject, and [ErrBadKey] that it does so twice or malformed
// (both InvalidArgument). An error that carries a gRPC status, such as Unauthenticated, ends the call with that
// status, and any other is Internal. The KeyFuncs of this package start a key with a word for its kind, so that
// an address and a metadata value with the same text are different subjects.
type KeyFunc func(ctx context.Context, call Call) (string, error)

var (
	// ErrExempt is the error of a KeyFunc for a call that it does not limit.
	ErrExempt = middleware.ErrExempt
	// ErrNoKey is the error of a KeyFunc for a call without the parts of the key. [FirstOf] goes on to its
	// next function.
	ErrNoKey = middleware.ErrNoKey
	// ErrBadKey is the error of a KeyFunc for a call whose key is ambiguous or malformed, such as two API keys.
	// The handler may accept such a call, so [FirstOf] does not go on: the caller would choose where it is
	// charged.
	ErrBadKey = middleware.ErrBadKey
)

// A request is the arguments of a KeyFunc as one value, for package middleware.
type request struct {
	ctx  context.Context
	call Call
}

func (r request) context() context.Context { return r.ctx }

// ours returns a KeyFunc of package middleware as one of this package.
func ours(key middleware.KeyFunc[request]) KeyFunc {
	return func(ctx context.Context, call Call) (string, error) { return key(request{ctx, call}) }
}

// theirs returns KeyFuncs of this package as those of package middleware. Nil stays nil.
func theirs(keys ...KeyFunc) []middleware.KeyFunc[request] {
	out := make([]middleware.KeyFunc[request], len(keys))
	for i, key := range keys {
		if key != nil {
			out[i] = func(r request) (string, error) { return key(r.ctx, r.call) }
		}
	}
	return out
}

// Shared returns one key for all calls, for limits on all clients together.
func Shared(name string) KeyFunc { return ours(middleware.Shared[request](name)) }

// Method returns the full method as the key. A server with grpc.UnknownServiceHandler receives methods that
// its clients invent, each of them a subject.
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
// a client. Whoever can choose the value can choose the key, so it has to come from a trusted peer, such as
// your gateway, which replaces what the client sent. A call without a value, or with a blank one, has no key;
// several values are [ErrBadKey]. A comma is part of the value.
func Metadata(name string) KeyFunc { return ours(field(name).Key()) }

// APIKey returns the HMAC of the API key in a metadata value, see [sash.Secret]: neither the store nor a
// log sees the API key. Of "authorization" it takes the token of the scheme Bearer. A call without an API
// key, or with another scheme, has no key. Several values are [ErrBadKey], and so is one that a handler could
// read in more than one way: with a comma, which is how proxies join several, with bytes that are not printable
// ASCII (unless the name ends in "-bin"), or, in "authorization", without a scheme. An empty hmacKey is an error.
//
// A client that invents API keys invents subjects. Authenticate first, or add a second interceptor
// with a limit per address before this one.
func APIKey(name string, hmacKey []byte) (KeyFunc, error) {
	key, err := field(name).APIKey(hmacKey)
	if err != nil {
		return nil, err
	}
	return ours(key), nil
}

func field(name string) middleware.Field[request] {
	binary := strings.HasSuffix(strings.ToLower(name), "-bin")
	return middleware.Field[request]{Kind: "metadata", Name: name, Binary: binary, Values: func(r request) []string {
		if r.call.client {
			md, _ := metadata.FromOutgoingContext(r.ctx)
			return md.Get(name)
		}
		return metadata.ValueFromIncomingContext(r.ctx, name)
	}}
}

// User returns the authenticated user as the key. It calls the function with the call's context, where an
// interceptor that ran before has stored the user; the function returns false when there is none. A nil
// function is an error on every call.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	return ours(middleware.User(request.context, user))
}

// Join combines the keys of all functions into one, such as a user's calls of one method. The first error
// is the result. No function at all, or a nil one, is an error on every call.
func Join(keys ...KeyFunc) KeyFunc { return ours(middleware.Join(theirs(keys...)...)) }

// FirstOf returns the first key that the call has. It goes on to the next function on [ErrNoKey], and on
// no other error, such as [ErrBadKey]. No function at all, or a nil one, is an error on every call.
func FirstOf(keys ...KeyFunc) KeyFunc { return ours(middleware.FirstOf(theirs(keys...)...)) }

// PeerAddress is a [KeyFunc] for servers: the address at the other end of the connection, by its /64 for
// IPv6, without a zone, and as IPv4 if it is one. It reads no metadata. Behind a proxy all calls have the
// proxy's address. A peer without an address, as on a Unix socket, has no key.
func PeerAddress(ctx context.Context, _ Call) (string, error) {
	return peerKey(ctx, middleware.DefaultIPv6Bits)
}

// PeerPrefix is [PeerAddress] with another part of an IPv6 address: 1 to 128 bits. Other numbers are an
// error on every call.
func PeerPrefix(ipv6Bits int) KeyFunc {
	return func(ctx context.Context, _ Call) (string, error) { return peerKey(ctx, ipv6Bits) }
}

func peerKey(ctx context.Context, ipv6Bits int) (string, error) {
	if ipv6Bits < 1 || ipv6Bits > 128 {
		return "", fmt.Errorf("grpclimit: PeerPrefix takes 1 to 128 bits, not %d", ipv6Bits)
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: the call has no peer", ErrNoKey)
	}
	withPort, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return "", fmt.Errorf("%w: the peer %q has no address", ErrNoKey, p.Addr)
	}
	return middleware.AddressKey(withPort.Addr().WithZone("").Unmap(), ipv6Bits), nil
}
