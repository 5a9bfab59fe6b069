package grpclimit

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/middleware"
)

// ServerOptions are the optional settings of a [ServerInterceptor]. The zero value is the default. All
// functions may be called concurrently.
type ServerOptions struct {
	// Cost returns the units of a call in layers of Requests, at least 1. Nil is 1. A layer can have its own
	// Cost. A call whose cost exceeds a limit's units ends with InvalidArgument: it can never be admitted.
	Cost func(call Call) int64
	// Outcome distinguishes failures from successes in layers of Failures. Nil is ByCode.
	Outcome OutcomeFunc
	// FailOpen admits calls while the store fails: nothing is limited then. It suits limits that are a courtesy
	// rather than a protection, and is an error together with a layer of Failures. Watch OnError. By default
	// such calls end with Unavailable and a random RetryInfo of 5 to 10 seconds.
	FailOpen bool
	// Timeout is how long a decision may take, and how long the end of a call waits for the release of its charge. A slower store
	// counts as failed. Zero is a second. A negative Timeout is as long as the call's context allows, and a second for a release.
	Timeout time.Duration
	// OnError receives every error of the store, even if the client does not see it, and errors of wrong keys,
	// costs and limits. It does not receive what any caller can cause: refusals, ErrNoKey, ErrBadKey,
	// sash.ErrCostAboveLimit, statuses chosen by the key function, and errors of callers that gave up.
	OnError func(call Call, err error)
}

// A ServerInterceptor limits the calls that a server receives. It is safe for concurrent use.
type ServerInterceptor struct {
	calls *middleware.Gate[Call]
	opts  ServerOptions
}

// NewServerInterceptor returns an interceptor that applies the limiter's limits to every key. A nil opts is
// the default. It panics if limiter or key is nil.
func NewServerInterceptor(limiter *sash.Limiter, key KeyFunc, opts *ServerOptions) (*ServerInterceptor, error) {
	if key == nil {
		panic("grpclimit: an interceptor needs a key function, such as PeerAddress")
	}
	return NewServerLayers(limiter, []Layer{{Key: key}}, opts)
}

// NewServerLayers returns an interceptor that checks a call against the limits of every layer that applies to it: see [middleware.NewGate].
// On a Redis Cluster see [sash.KeyTogether]. The error names the invalid layer or option. It panics if limiter is nil.
func NewServerLayers(limiter *sash.Limiter, layers []Layer, opts *ServerOptions) (*ServerInterceptor, error) {
	if limiter == nil {
		panic("grpclimit: an interceptor needs a limiter, from sash.New")
	}
	s := &ServerInterceptor{opts: *cmp.Or(opts, &ServerOptions{})}
	if s.opts.Outcome == nil {
		s.opts.Outcome = ByCode
	}
	if s.opts.OnError == nil {
		s.opts.OnError = func(Call, error) {}
	}
	of := middleware.GateOptions[Call]{Cost: s.opts.Cost, FailOpen: s.opts.FailOpen, Timeout: s.opts.Timeout, OnError: s.opts.OnError}
	var err error
	if s.calls, err = middleware.NewGate(limiter, layers, of); err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return s, nil
}

// Unary is a [grpc.UnaryServerInterceptor].
func (s *ServerInterceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	err = s.serve(Call{Context: ctx, FullMethod: info.FullMethod, Message: req}, func() error {
		res, err = handler(ctx, req)
		return err
	})
	return res, err
}

// Stream is a [grpc.StreamServerInterceptor]. It charges a stream at its start, and settles the charge when the
// handler returns.
func (s *ServerInterceptor) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := Call{Context: stream.Context(), FullMethod: info.FullMethod, Stream: true}
	return s.serve(call, func() error { return handler(srv, stream) })
}

// serve runs the handler of an admitted call and settles its charges, even if the handler panics; the panic
// continues. It returns the handler's error, or the status of a call that was not admitted.
func (s *ServerInterceptor) serve(call Call, handler func() error) error {
	d, err := s.calls.Decide(call.Context, call)
	switch {
	case err != nil:
		if err := s.opts.fail(call, err).Err(); err != nil {
			return err
		}
	case d.Limited() && !d.Result.Allowed:
		return refusal(&d).Err()
	case d.Held() && call.Context.Err() != nil: // no client is left to serve
		d.Settle(call.Context, Neutral)
		return status.FromContextError(call.Context.Err()).Err()
	}
	if !d.Held() {
		return handler()
	}
	end := status.New(codes.Internal, "the handler panicked")
	defer func() {
		outcome := Failed // if the Outcome function panics, the outcome is Failed; a slot is released anyway
		defer func() { d.Settle(call.Context, outcome) }()
		if d.Charges(Failures) {
			outcome = s.opts.Outcome(call, end)
		}
	}()
	err = handler()
	end = endOf(call, err)
	return err
}

// These types and constants are documented in package middleware.
type (
	// A Charge says what a layer counts.
	Charge = middleware.Charge
	// An Outcome is how a call ended.
	Outcome = middleware.Outcome
)

// The charges and outcomes. A stream is one attempt, and one call in flight, until its handler returns.
const (
	Requests = middleware.Requests
	Failures = middleware.Failures
	InFlight = middleware.InFlight

	Neutral   = middleware.Neutral
	Failed    = middleware.Failed
	Succeeded = middleware.Succeeded
)

// An OutcomeFunc returns the outcome of a call. The status is what the handler, or an interceptor that runs
// after this one, returned. It is OK for no error, Unknown, Canceled or DeadlineExceeded for an error without a
// status, as in gRPC, and Internal after a panic.
//
// If the call's context had ended, a handler that returned no error has not succeeded, because the client got
// no answer: the status is then Canceled or DeadlineExceeded.
type OutcomeFunc func(call Call, end *status.Status) Outcome

// ByCode is an [OutcomeFunc]. OK is Succeeded. The codes that blame the client are Failed, like HTTP's 4xx in httplimit.ByStatus:
// InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated, FailedPrecondition, Aborted, OutOfRange and
// Canceled. The other codes, such as ResourceExhausted, are Neutral.
//
// A client that leaves, or whose deadline passes, has Failed too, because the handler may have got far enough: an attacker gains
// nothing by ending an attempt early. So DeadlineExceeded is Failed after the call's own deadline, and Neutral after a deadline
// of the handler. If clients usually end streams by leaving, write an OutcomeFunc that tells this from an attack.
func ByCode(call Call, end *status.Status) Outcome {
	switch end.Code() {
	case codes.OK:
		return Succeeded
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Canceled:
		return Failed
	case codes.DeadlineExceeded:
		if call.Context.Err() != nil {
			return Failed
		}
	}
	return Neutral
}

// endOf returns the status of a call whose handler returned err.
func endOf(call Call, err error) *status.Status {
	if err == nil {
		err = call.Context.Err()
	}
	if end, ok := status.FromError(err); ok {
		return end
	}
	return status.FromContextError(err)
}

// A Call describes a call when it is charged.
type Call struct {
	// Context is the call's context. It has the peer, the metadata, and what earlier interceptors stored.
	Context context.Context
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Stream reports whether the call is a stream, in either direction.
	Stream bool
	// Message is the request of a unary call, and nil for a stream. It must not be changed.
	Message any
}

// A KeyFunc returns the key of the subject that a call is charged to. See [middleware.KeyFunc]. [ErrNoKey] and
// [ErrBadKey] end the call with InvalidArgument. An error that carries a gRPC status, such as Unauthenticated,
// ends the call with that status. Any other error ends it with Internal.
type KeyFunc = middleware.KeyFunc[Call]

// A Layer limits calls by one subject. See [middleware.Layer]. If the error of LimitsFor has a gRPC status, the
// call ends with it, as for a KeyFunc.
type Layer = middleware.Layer[Call]

// The errors of a KeyFunc: see package middleware.
var (
	ErrExempt = middleware.ErrExempt
	ErrNoKey  = middleware.ErrNoKey
	ErrBadKey = middleware.ErrBadKey
)

// Shared returns one key for all calls, for limits on all clients together.
func Shared(name string) KeyFunc { return middleware.Shared[Call](name) }

// Method returns the full method as the key. With grpc.UnknownServiceHandler, clients can invent methods, and
// each is a new subject.
func Method(call Call) (string, error) { return sash.Key("method", call.FullMethod), nil }

// Metadata returns a value of the incoming metadata as the key: see [middleware.Field.Key]. A client that can
// choose the value can choose the key, so the value has to come from a trusted peer, such as your gateway.
func Metadata(name string) KeyFunc { return field(name).Key() }

// APIKey returns the HMAC of the API key in a metadata value, as [middleware.Field.APIKey] does: neither the store
// nor a log receives the API key. A value whose name ends in "-bin" can have any bytes. An empty hmacKey is an error.
//
// Each invented API key is a new subject. Authenticate first, or add a [Layer] per address.
func APIKey(name string, hmacKey []byte) (KeyFunc, error) { return field(name).APIKey(hmacKey) }

func field(name string) middleware.Field[Call] {
	binary := strings.HasSuffix(strings.ToLower(name), "-bin")
	return middleware.Field[Call]{Kind: "metadata", Name: name, Binary: binary, Values: func(call Call) []string {
		return metadata.ValueFromIncomingContext(call.Context, name)
	}}
}

// User returns the authenticated user as the key. An interceptor that ran before has stored the user in the
// call's context. The function returns false if there is none. A nil function is an error on every call.
func User(user func(context.Context) (id string, ok bool)) KeyFunc {
	return middleware.User(func(call Call) context.Context { return call.Context }, user)
}

// Join combines the keys of all functions into one, such as a user's calls of one method: see [middleware.Join].
func Join(keys ...KeyFunc) KeyFunc { return middleware.Join(keys...) }

// FirstOf returns the first key that the call has: see [middleware.FirstOf].
func FirstOf(keys ...KeyFunc) KeyFunc { return middleware.FirstOf(keys...) }

// PeerAddress is a [KeyFunc] that returns the address of the connection's peer: an IPv6 address as its /64,
// without a zone, and an IPv4-mapped address as IPv4. It reads no metadata, so behind a proxy all calls have
// the proxy's address. A peer without an address, as on a Unix socket, has no key.
func PeerAddress(call Call) (string, error) {
	p, ok := peer.FromContext(call.Context)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: the call has no peer", ErrNoKey)
	}
	withPort, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return "", fmt.Errorf("%w: the peer %q has no address", ErrNoKey, p.Addr)
	}
	return middleware.AddressKey(withPort.Addr(), middleware.DefaultIPv6Bits), nil
}
