package rls

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/throttle"
)

// Bounds of a connection.
const (
	maxHeaders   = 16 << 10
	maxStreams   = 250
	idleTimeout  = 10 * time.Minute
	graceTimeout = 10 * time.Second
	minPing      = 500 * time.Millisecond // between pings of a connection without calls; Envoy may be set to one a second
	// Goroutines that wait for calls, with stacks that have grown already. Further calls get a goroutine of their own.
	streamWorkers = 128
	// Bytes that a client may send ahead. If gRPC adapted this window, each message would cost a ping and its answer.
	window = 1 << 20
)

// Server configures the gRPC server. The zero value is the default.
type Server struct {
	// TLS is nil for plain text.
	TLS *tls.Config
	// MaxConnectionAge asks clients to connect again, so that new instances get their share. Zero is 24 hours.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may continue after that. Zero is one hour.
	MaxConnectionAgeGrace time.Duration
	// Connections bounds and counts the connections. If its Log is nil, it uses the server's.
	Connections conns.Bounds
	// Ready is called at each health check. While it returns an error, the service is unhealthy, but the empty name
	// stays healthy: it says that the process serves. Nil is always ready.
	Ready func(context.Context) error
	// Draining is closed before the context of Serve ends. From then on the server is unhealthy, and answers as before. Nil never drains.
	Draining <-chan struct{}
	// Lasting are the services beside the rate limit service.
	Lasting []Lasting
	// Log gets a warning when calls are cut off at the end. Nil is slog.Default.
	Log *slog.Logger

	calls *calls // nil is the default
}

// A Lasting is a service whose method is a stream. After its first message, the stream may last as long as its connection.
type Lasting struct {
	Method string
	// Streams is the most streams at once, which clients share (conns.Share). Zero is the bound of calls.
	Streams int64
	// Register registers the service. Its streams may end when ended is closed.
	Register func(server grpc.ServiceRegistrar, ended <-chan struct{})
}

// Serve answers on a listener until the context ends. Then the server is unhealthy, answers what has been sent over
// connections that clients have begun, and asks clients to go elsewhere (GOAWAY). Serve lets calls in flight finish
// for up to ten seconds, and returns nil. It closes the listener in any case.
func (o Server) Serve(ctx context.Context, listener net.Listener, service *Service) error {
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 24*time.Hour)
	o.MaxConnectionAgeGrace = cmp.Or(o.MaxConnectionAgeGrace, time.Hour)
	o.Log = cmp.Or(o.Log, slog.Default())
	bound := cmp.Or(o.calls, &calls{within: callTime, most: maxCalls, half: maxHalf})
	o.Connections.Log = cmp.Or(o.Connections.Log, o.Log)
	known := conns.New(listener, o.Connections)
	bound.conns, bound.lost, bound.gate = known, service.opts.Stats.Invalid, service.opts.Access
	bound.lasting = make(map[string]*conns.Share)
	for _, l := range o.Lasting {
		bound.lasting[l.Method] = conns.NewShare(cmp.Or(l.Streams, int64(bound.most)))
	}
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	server := grpc.NewServer(
		grpc.Creds(boundedCredentials{transport, bound.within, conns.NewShare(bound.half), &throttle.Log{To: o.Log, Every: time.Minute}}),
		grpc.InTapHandle(bound.enter),
		grpc.UnaryInterceptor(bound.arrived),
		grpc.ChainStreamInterceptor(service.recovering, service.opts.Access.Stream, bound.stream),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.ReadBufferSize(8<<10),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTimeout, MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
			Time: 2 * time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
	server.RegisterService(service.description(), service)
	healthpb.RegisterHealthServer(server, checks{ready: o.Ready, draining: o.Draining, ended: ctx.Done()})
	for _, l := range o.Lasting {
		l.Register(server, ctx.Done())
	}
	reflection.Register(server)

	if err := known.Serve(ctx, func() error { return server.Serve(known) }); err != nil {
		server.Stop()
		return err
	}
	stopped := make(chan struct{})
	go func() { server.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(graceTimeout):
		o.Log.Warn("stopped with gRPC calls in flight")
		server.Stop() // Stop does not wait for handlers
	}
	return nil
}

// checks answers health checks. It has no Watch, whose streams could last: clients learn by GOAWAY that the service ends.
type checks struct {
	healthpb.UnimplementedHealthServer
	ready           func(context.Context) error
	draining, ended <-chan struct{}
}

func (c checks) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	answer := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	select {
	case <-c.draining:
		return answer, nil
	case <-c.ended:
		return answer, nil
	default:
	}
	known := req.GetService() == "ratelimit" || req.GetService() == pb.RateLimitService_ServiceDesc.ServiceName
	switch {
	case !known && req.GetService() != "":
		return nil, status.Error(codes.NotFound, "the service has no health under this name")
	case !known || c.ready == nil || c.ready(ctx) == nil:
		answer.Status = healthpb.HealthCheckResponse_SERVING
	}
	return answer, nil
}

// Bounds of calls, from the arrival of their header.
const (
	callTime   = 10 * time.Second
	maxCalls   = 10_000
	maxUntaken = 20                         // answers that a connection has not taken in time
	maxHalf    = largeMessages * maxMessage // bytes of incomplete messages
)

// calls bounds the calls of a server. It counts a call before its message, which may never come.
type calls struct {
	within time.Duration
	most   int
	half   int64 // bytes of incomplete messages
	conns  *conns.Listener
	lost   func() // called for each call that ends before its message came, except calls of health and reflection

	lasting map[string]*conns.Share // of streams, by lasting method
	gate    *access.Gate

	mu      sync.Mutex
	partial list.List // guarded by mu: the calls whose message has not come, the oldest first
	whole   list.List // guarded by mu: the other calls, likewise
}

// A call is one that calls counts. Its context has the call under callKey.
type call struct {
	of     *calls
	conn   *conns.Conn // may be nil
	cancel context.CancelFunc
	counts bool // lost is called for it
	leave  func() bool

	in    *list.List    // guarded by calls.mu: the list that holds the call; nil after its end
	place *list.Element // guarded by calls.mu: its place there
}

type callKey struct{}

// enter lets a call begin. At the bound, it cancels the oldest call whose message has not come, or else the oldest call.
func (c *calls) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	one := &call{of: c, counts: !strings.HasPrefix(info.FullMethodName, "/grpc.")}
	if p, ok := peer.FromContext(ctx); ok {
		one.conn = c.conns.Of(p.Addr)
	}
	if one.conn != nil {
		one.conn.Begin()
	}
	if c.lasting[info.FullMethodName] != nil {
		ctx, one.cancel = context.WithCancel(ctx)
		if one.conn != nil {
			context.AfterFunc(ctx, one.conn.End)
		}
		return context.WithValue(ctx, callKey{}, one), nil
	}
	ctx, one.cancel = context.WithTimeoutCause(ctx, c.within, errUndecided) // bounds the decision too, so that a call has one timer
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial.Len()+c.whole.Len() >= c.most {
		oldest := cmp.Or(c.partial.Front(), c.whole.Front()).Value.(*call)
		oldest.forget()
		oldest.cancel()
	}
	one.in, one.place = &c.partial, c.partial.PushBack(one)
	one.leave = context.AfterFunc(ctx, one.end) // gRPC may end the call before a handler does, or have no handler for it
	return context.WithValue(ctx, callKey{}, one), nil
}

// stream bounds the lasting streams, and ends those whose first message does not come. It is a grpc.StreamServerInterceptor.
func (c *calls) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, share := stream.Context(), c.lasting[info.FullMethod]
	one, ok := ctx.Value(callKey{}).(*call)
	if share == nil || !ok {
		return next(srv, stream)
	}
	client := c.gate.Caller(ctx).Client()
	if !share.Take(client, 1) {
		return status.Error(codes.ResourceExhausted, "too many streams")
	}
	defer share.Give(client, 1)
	timer := time.AfterFunc(c.within, one.cancel)
	defer timer.Stop()
	err := next(srv, begun{stream, timer})
	if ctx.Err() != nil {
		return status.Error(codes.DeadlineExceeded, "the first message has not come in time")
	}
	return err
}

// A begun stream ends when its timer fires, unless a message has come.
type begun struct {
	grpc.ServerStream
	timer *time.Timer
}

func (b begun) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		b.timer.Stop()
	}
	return err
}

// arrived moves a call to the calls whose message has come. When the call is answered, arrived ends it.
func (c *calls) arrived(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if one, ok := ctx.Value(callKey{}).(*call); ok {
		c.mu.Lock()
		if one.in != nil {
			one.in.Remove(one.place)
			one.in, one.place = &c.whole, c.whole.PushBack(one)
		}
		c.mu.Unlock()
		defer func() { one.leave(); one.end() }()
	}
	return next(ctx, req)
}

func (c *call) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.forget()
}

// forget removes a call. The caller holds mu.
func (c *call) forget() {
	if c.in == nil {
		return
	}
	if c.in == &c.of.partial && c.counts {
		c.of.lost()
	}
	c.in.Remove(c.place)
	c.in = nil
	if c.conn != nil {
		c.conn.End()
	}
}
