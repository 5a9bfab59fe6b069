package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"example.com/sash"
)

// ServerOptions are the optional settings of a [ServerInterceptor]. The zero value is the default. All
// functions may be called concurrently.
type ServerOptions struct {
	// Cost is the units that a call costs, or a stream's start, or a message: at least 1. Nil is 1. A
	// cost above a limit's units is InvalidArgument: the call can never be admitted, so the client has to
	// make it smaller; waiting does not help.
	Cost func(ctx context.Context, call Call) int64
	// LimitsFor returns the limits for a call, such as those of its user's plan. When they change, charges of the
	// past stay. With Messages it is called for each message too. Its error is one of the application, as that of a key
	// function is: an error with a gRPC status chooses the status. Nil or an empty result means the limiter's limits.
	LimitsFor func(ctx context.Context, call Call) ([]sash.Limit, error)
	// Exempt calls go on to the handler without being counted. With Messages it is called for
	// each message too: a stream's start can be exempt and its messages not. Nil is none.
	Exempt func(ctx context.Context, call Call) bool
	// Messages charges each message that a stream receives, besides the stream's start. A stream of
	// answers to one request receives that one.
	Messages bool
	// Subject is how a refusal names the key. Zero is SubjectHidden.
	Subject Subject
	// PartitionKey is the HMAC key for SubjectHMAC.
	PartitionKey []byte
	// OnUnavailable says what happens while the store fails. Zero is FailClosed.
	OnUnavailable Unavailable
	// Timeout is the longest that a decision may take; a slower store has failed. Zero is
	// DefaultTimeout, negative is as long as the call's context allows.
	Timeout time.Duration
	// UnavailableRetry is the least RetryInfo of Unavailable, which is a random time of up to twice as long, so that
	// clients do not return together. Zero is DefaultUnavailableRetry.
	UnavailableRetry time.Duration
	// OnError receives every error: the store's, also when FailOpen hides it from the client, and those of
	// wrong keys, costs and limits. It does not receive what the caller has to change, which any caller can cause:
	// refusals, ErrNoKey, ErrBadKey and sash.ErrCostAboveLimit; nor statuses that the key function chose and the
	// errors of callers that gave up.
	OnError func(ctx context.Context, call Call, err error)
}

// A ServerInterceptor holds the calls that a server receives to limits. It is safe for concurrent use.
type ServerInterceptor struct {
	gate
	messages bool
	subject  func(key string) string
}

// NewServerInterceptor returns an interceptor that holds every key to the limiter's limits. A nil opts is
// the default. It panics if limiter or key is nil.
func NewServerInterceptor(limiter *sash.Limiter, key KeyFunc, opts *ServerOptions) (*ServerInterceptor, error) {
	if opts == nil {
		opts = &ServerOptions{}
	}
	s := &ServerInterceptor{
		gate: gate{
			limiter: limiter, key: keyOf(limiter, key),
			cost: opts.Cost, limitsFor: opts.LimitsFor, exempt: opts.Exempt,
			onUnavailable: opts.OnUnavailable, timeout: opts.Timeout, retry: opts.UnavailableRetry, onError: opts.OnError,
		},
		messages: opts.Messages,
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(opts.PartitionKey) > 0 && opts.Subject != SubjectHMAC {
		return nil, errors.New("grpclimit: a PartitionKey has no effect without Subject: SubjectHMAC")
	}
	switch opts.Subject {
	case SubjectKey:
		s.subject = func(key string) string { return key }
	case SubjectHMAC:
		if len(opts.PartitionKey) == 0 {
			return nil, errors.New("grpclimit: SubjectHMAC needs a PartitionKey, such as 32 random bytes that all instances share")
		}
		hmacKey := append([]byte(nil), opts.PartitionKey...)
		s.subject = func(key string) string { return sash.Secret(hmacKey, key) }
	case SubjectHidden:
		s.subject = func(string) string { return "" }
	default:
		return nil, fmt.Errorf("grpclimit: unknown Subject %d", opts.Subject)
	}
	return s, nil
}

// Unary is a [grpc.UnaryServerInterceptor].
func (s *ServerInterceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.charge(ctx, Call{FullMethod: info.FullMethod, Message: req}); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor]. It charges a stream when it starts. With
// ServerOptions.Messages a message that is refused is an error of RecvMsg, which ends the stream when the
// handler returns it. The message is lost: the client has to send it again on another stream.
func (s *ServerInterceptor) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	call := Call{FullMethod: info.FullMethod, Stream: true}
	if err := s.charge(stream.Context(), call); err != nil {
		return err
	}
	if s.messages {
		stream = &chargedStream{ServerStream: stream, limit: s, call: call}
	}
	return handler(srv, stream)
}

// charge returns nil when the call goes on, and otherwise the status that ends it.
func (s *ServerInterceptor) charge(ctx context.Context, call Call) error {
	subject, err := s.subjectOf(ctx, call)
	if err == nil && subject.Key == "" {
		return nil
	}
	var res sash.Result
	if err == nil {
		res, err = s.decide(ctx, subject)
	}
	if err != nil {
		return s.fail(ctx, call, err).Err()
	}
	if res.Allowed {
		return nil
	}
	return refusal(res, s.subject).Err()
}

// A chargedStream charges each message that it receives.
type chargedStream struct {
	grpc.ServerStream
	limit *ServerInterceptor
	call  Call
}

func (c *chargedStream) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	call := c.call
	call.Message = m
	return c.limit.charge(c.Context(), call)
}
