package rls

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
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
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

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
	// Goroutines that wait for calls: a new one for each call would have to make its stack larger every time. Further
	// calls get one of their own.
	streamWorkers = 128
)

// Server is how the gRPC server runs. The zero value is the default.
type Server struct {
	// TLS is nil for plain text.
	TLS *tls.Config
	// MaxConnectionAge asks clients to connect again, so that new instances get their share. Zero is 24 hours.
	MaxConnectionAge time.Duration
	// MaxConnectionAgeGrace is how long calls may go on then. Zero is one hour.
	MaxConnectionAgeGrace time.Duration
	// Connections bounds and counts the connections. A nil Log is that of the server.
	Connections conns.Bounds
	// Ready is asked at each check of health, which is down while it returns an error. The empty name stays healthy: it says
	// that the process serves. Nil is always ready.
	Ready func(context.Context) error
	// Draining is closed some time before the context of Serve ends: then it is unhealthy, and answers as before.
	// Nil is never.
	Draining <-chan struct{}
	// Log gets a warning when calls are cut off at the end. Nil is slog.Default.
	Log *slog.Logger

	calls *calls // nil is the default
}

// Serve answers on a listener until the context ends. Then it is unhealthy, answers what has been sent over connections
// that clients have begun, asks clients to go elsewhere (GOAWAY), lets calls in flight finish for up to ten seconds,
// and returns nil. The listener is closed in any case.
func (o Server) Serve(ctx context.Context, listener net.Listener, service *Service) error {
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 24*time.Hour)
	o.MaxConnectionAgeGrace = cmp.Or(o.MaxConnectionAgeGrace, time.Hour)
	o.Log = cmp.Or(o.Log, slog.Default())
	bound := cmp.Or(o.calls, &calls{within: callTime, most: maxCalls, half: maxHalf})
	o.Connections.Log = cmp.Or(o.Connections.Log, o.Log)
	known := conns.New(listener, o.Connections)
	bound.conns, bound.lost = known, service.opts.Stats.Invalid
	server := grpc.NewServer(o.options(bound, service.opts.Access)...)
	server.RegisterService(service.description(), service)
	healthpb.RegisterHealthServer(server, checks{ready: o.Ready, draining: o.Draining, ended: ctx.Done()})
	reflection.Register(server)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(known) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	known.Stop()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		server.Stop()
		return err
	}
	stopped := make(chan struct{})
	go func() { server.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(graceTimeout):
		o.Log.Warn("stopped with gRPC calls in flight")
		server.Stop() // which does not wait for handlers
	}
	return nil
}

// options returns the bounds of connections and calls, TLS, and the check of streams.
func (o Server) options(bound *calls, gate *access.Gate) []grpc.ServerOption {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	return []grpc.ServerOption{
		grpc.Creds(unread{transport, bound.within, conns.NewShare(bound.half), &throttle.Log{To: o.Log, Every: time.Minute}}),
		grpc.InTapHandle(bound.enter),
		grpc.UnaryInterceptor(bound.arrived),
		grpc.StreamInterceptor(gate.Stream),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.ReadBufferSize(8 << 10),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleTimeout, MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
			Time: 2 * time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
}

// checks answers health checks. It has no Watch, whose streams could last as long as their connections: a client that asks for
// one takes the service for healthy, and learns by GOAWAY that it ends.
type checks struct {
	healthpb.UnimplementedHealthServer
	ready           func(context.Context) error
	draining, ended <-chan struct{}
}

// Check is of healthpb.HealthServer.
func (c checks) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	serving := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
	down := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	select {
	case <-c.draining:
		return down, nil
	case <-c.ended:
		return down, nil
	default:
	}
	switch req.GetService() {
	case "":
		return serving, nil
	case "ratelimit", pb.RateLimitService_ServiceDesc.ServiceName:
		if c.ready != nil && c.ready(ctx) != nil {
			return down, nil //nolint:nilerr // the error is what down says
		}
		return serving, nil
	}
	return nil, status.Error(codes.NotFound, "the service has no health under this name")
}
