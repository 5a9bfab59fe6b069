// Package rls answers Envoy's rate limit protocol, envoy.service.ratelimit.v3, over gRPC and in JSON.
package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
	"example.com/sash/service/internal/wire"
)

// Options for a Service. The zero value is the default.
type Options struct {
	// Timeout bounds one decision over HTTP; zero is one second. A Server bounds calls over gRPC.
	Timeout time.Duration
	// Counting counts as Envoy's service does, and answers as it does. Nil is none.
	Counting *decide.Counting
	// Shadow answers OK to every request, with the statuses as they are.
	Shadow bool
	// Headers are added to responses. Nil is none.
	Headers *Headers
	// Quota makes every descriptor a quota: see decide.Request.
	Quota bool
	// Metadata describes the request in dynamic_metadata.
	Metadata bool
	// Access says which callers may decide, refund and set limits. Nil lets all callers decide, and none do more.
	Access *access.Gate
	// Stats counts calls; its observer counts decisions. Nil counts nowhere.
	Stats *stats.Registry
	// Log gets failures of the store, at most one a second, and faults. Nil is slog.Default.
	Log *slog.Logger
}

// A Service answers requests. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer
	decider *decide.Decider
	opts    Options
	log     throttle.Log
	Room    conns.Room // for large requests that are being read or decided, at any port
}

// New returns a service. A nil opts is the default.
func New(decider *decide.Decider, opts *Options) *Service {
	s := &Service{decider: decider, opts: *cmp.Or(opts, &Options{})}
	s.Room.Add(largeMessages * maxMessage)
	s.opts.Timeout = cmp.Or(s.opts.Timeout, time.Second)
	s.opts.Stats = cmp.Or(s.opts.Stats, stats.New(nil))
	s.opts.Log = cmp.Or(s.opts.Log, slog.Default())
	s.log.To = s.opts.Log
	return s
}

// errUndecided is the cause of a context that ended because the decision took too long.
var errUndecided = errors.New("the decision took too long")

// ShouldRateLimit implements the protocol over gRPC. Errors are INVALID_ARGUMENT for an invalid request,
// UNAUTHENTICATED and PERMISSION_DENIED for a caller without the right, UNAVAILABLE without a store or a configuration,
// DEADLINE_EXCEEDED and CANCELLED for a call that the caller ended, and INTERNAL for a fault, which is logged.
func (s *Service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	res, err := s.answer(ctx, decide.GRPC, req)
	if status.Code(err) == codes.Unavailable { // as Retry-After over HTTP
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.Itoa(1000+rand.N(4000))))
	}
	return res, err
}

// description describes the protocol's service. It answers a call whose header shows an unknown caller before the message has come.
func (s *Service) description() *grpc.ServiceDesc {
	desc := pb.RateLimitService_ServiceDesc
	method := desc.Methods[0]
	decide := method.Handler
	method.Handler = func(srv any, ctx context.Context, message func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
		caller, err := s.opts.Access.Call(ctx)
		if err != nil {
			return next(ctx, nil, nil, func(context.Context, any) (any, error) { return nil, access.Status(err) })
		}
		return decide(srv, access.With(ctx, caller), message, next)
	}
	desc.Methods = []grpc.MethodDesc{method}
	return &desc
}

func (s *Service) answer(ctx context.Context, port decide.Port, req *pb.RateLimitRequest) (res *pb.RateLimitResponse, err error) {
	began := time.Now()
	defer func() {
		if fault := recover(); fault != nil {
			res, err = nil, s.fault(fault)
		}
		s.opts.Stats.Took(time.Since(began))
	}()
	return s.decide(ctx, port, req)
}

func (s *Service) fault(panicked any) error {
	s.opts.Stats.Service.Panics.Add(1)
	s.opts.Log.Error("a request was not answered because of a fault", "fault", fmt.Sprint(panicked), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "the request could not be decided because of a fault of the service")
}

// recovering ends a stream that panics. It is a grpc.StreamServerInterceptor.
func (s *Service) recovering(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = s.fault(fault)
		}
	}()
	return next(srv, stream)
}

func (s *Service) decide(ctx context.Context, port decide.Port, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	parts, need, err := partsOf(req)
	if err != nil {
		return nil, s.wrong(codes.InvalidArgument, err)
	}
	if n := weight(req); n > longest {
		if !s.Room.Take(n) {
			return nil, s.wrong(codes.ResourceExhausted, errManyBytes)
		}
		defer s.Room.Add(n)
	}
	if err := s.opts.Access.Check(ctx, req.GetDomain(), need); err != nil {
		return nil, access.Status(err)
	}
	answers, err := s.decider.Decide(ctx, decide.Request{Domain: req.GetDomain(), Port: port, Parts: parts, Lenient: true, Quota: s.opts.Quota, Counting: s.opts.Counting})
	if err != nil {
		return nil, s.failure(ctx, err, len(parts) > 1)
	}
	if s.opts.Shadow && s.opts.Counting == nil { // Envoy's service counts it in global_shadow_mode only
		s.opts.Stats.Shadowed(answers)
	}
	return s.response(req, parts, answers), nil
}

// wrong counts and logs a request that is invalid or too large, and returns its status.
func (s *Service) wrong(code codes.Code, err error) error {
	s.opts.Stats.Service.ServiceErrors.Add(1)
	s.opts.Stats.Invalid()
	s.log.Log(slog.LevelError, "a request was not decided: Envoy admits it, unless it has failure_mode_deny", "error", err)
	return status.Error(code, err.Error())
}

// failure returns the gRPC status of a request that was not decided. If it has several parts, some may have been charged.
func (s *Service) failure(ctx context.Context, err error, several bool) error {
	ended := ctx.Err() // by the caller
	if errors.Is(context.Cause(ctx), errUndecided) {
		ended = nil
	}
	switch {
	case errors.Is(err, config.ErrNone):
		s.opts.Stats.Service.ServiceErrors.Add(1)
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, sash.ErrInvalidLimit):
		s.opts.Stats.Service.ServiceErrors.Add(1)
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(ended, context.Canceled):
		return status.Error(codes.Canceled, "the caller gave up; whether the request was charged is not known")
	case ended != nil:
		s.opts.Stats.Service.StoreErrors.Add(1)
		return status.Error(codes.DeadlineExceeded, "the store did not answer within the caller's deadline; whether the request was charged is not known")
	}
	s.opts.Stats.Service.StoreErrors.Add(1)
	s.log.Log(slog.LevelError, "no decision", "error", err) // the error may disclose where the store is: not for the client
	silent := wire.Undecided
	if several {
		silent.NotAsked = silent.Unknown
	}
	text, _ := silent.Of(err)
	return status.Error(codes.Unavailable, text)
}

// ServeHTTP answers a RateLimitRequest in JSON, by whatever method, as Envoy's service does: 200 if it is allowed and 429
// if not, both with the RateLimitResponse in JSON. Other statuses have a text: 400 for an invalid request, 401 and 403 for
// a caller without the right, 413 for a large one, 503 if the store does not answer, 504 if it did not in time, and 500 for
// a fault. With a Counting, every error is 400 and Bad Request, as in Envoy's service, and the log says what is wrong.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := &weighed{Reader: http.MaxBytesReader(w, r.Body, maxMessage), large: &s.Room}
	defer func() { s.Room.Add(from.taken) }()
	body, err := io.ReadAll(from)
	var req pb.RateLimitRequest
	var large *http.MaxBytesError
	code, text := http.StatusBadRequest, ""
	switch {
	case errors.As(err, &large):
		code, text = http.StatusRequestEntityTooLarge, "the body is too large"
	case errors.Is(err, errManyBytes):
		code, text = http.StatusServiceUnavailable, err.Error()
	case err != nil:
		text = "the body did not arrive"
	default:
		if err := protojson.Unmarshal(body, &req); err != nil {
			text = "bad JSON: " + err.Error()
		}
	}
	if text != "" {
		s.opts.Stats.Invalid()
		s.log.Log(slog.LevelWarn, "a wrong request to /json was not decided", "error", text)
		s.fail(w, code, text)
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), s.opts.Timeout, errUndecided)
	defer cancel()
	res, err := s.answer(ctx, decide.HTTP, &req)
	if err != nil {
		s.fail(w, statuses[status.Code(err)], status.Convert(err).Message())
		return
	}
	out, err := protojson.Marshal(res)
	if err != nil { // every response here can be marshalled
		http.Error(w, "the answer could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if res.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(out) // a client that is gone is no concern of ours
}

// fail answers a request that was not decided. The reason is logged already.
func (s *Service) fail(w http.ResponseWriter, code int, text string) {
	if s.opts.Counting != nil {
		code, text = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
	}
	http.Error(w, text, code)
}

// statuses are the HTTP statuses for the errors of a Service.
var statuses = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
	codes.Unavailable: http.StatusServiceUnavailable, codes.Canceled: http.StatusServiceUnavailable,
	codes.ResourceExhausted: http.StatusServiceUnavailable, codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.Internal: http.StatusInternalServerError,
}
