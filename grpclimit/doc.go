// Package grpclimit puts a [sash.Limiter] in front of the handlers of a gRPC server.
//
//	limiter, err := sash.New(store, nil, sash.PerMinute(60))
//	...
//	limit, err := grpclimit.NewServerInterceptor(limiter, grpclimit.PeerAddress, nil)
//	...
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
//
// A [KeyFunc] returns the key that a call is charged to. Interceptors that run before this one, such as an
// authentication, can store what it needs in the context. A [Layer] adds limits on another subject: see
// [NewServerLayers]. The store decides on all layers in one step, all or nothing.
//
// # What is counted
//
// A layer counts calls, failures such as wrong passwords, or the calls in flight: see [Charge]. The interceptor
// settles a call, which may be a stream, when its handler has returned. So an interceptor that changes the
// status of a handler must run after this one.
//
// # Answers of a server
//
// An admitted call reaches the handler, whose result, error or panic is unchanged. Other calls end with a status:
//
//	ResourceExhausted  a limit has no room; with RetryInfo (exact) and QuotaFailure (the limits that refused)
//	Unavailable        the store failed, unless FailOpen; with RetryInfo
//	InvalidArgument    the call has no key (ErrNoKey) or a bad one (ErrBadKey), or costs more units than a limit has, so that it can never be admitted
//	Internal           the key function, the cost or the limits are wrong
//	Canceled, DeadlineExceeded  the caller gave up before there was a decision, or before the handler could run
//
// A failure is never ResourceExhausted: that would blame the client.
//
// # Clients
//
// [RetryAfter] reads the retry time from a refusal. A client with its own limit waits in an interceptor: see the example.
package grpclimit
