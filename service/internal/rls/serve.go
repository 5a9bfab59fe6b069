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
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"example.com/sash/service/internal/conns"
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
	// Ready is asked each second, and health is down while it returns an error. The empty name stays healthy: it says that
	// the process serves. Nil is always ready.
	Ready func(context.Context) error
	// Draining is closed some time before the context of Serve ends: then it is unhealthy, and answers as before.
	// Nil is never.
	Draining <-chan struct{}
	// Log gets a warning when calls are cut off at the end. Nil is slog.Default.
	Log *slog.Logger

	calls *calls // nil is the default
}

// HealthService is the name of the service in health checks, beside the empty one.
const HealthService = "ratelimit"

// Serve answers on a listener until the context ends. Then it is unhealthy, answers what has been sent over connections
// that clients have begun, asks clients to go elsewhere (GOAWAY), lets calls in flight finish for up to ten seconds,
// and returns nil. The listener is closed in any case.
func (o Server) Serve(ctx context.Context, listener net.Listener, service *Service) error {
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, 24*time.Hour)
	o.MaxConnectionAgeGrace = cmp.Or(o.MaxConnectionAgeGrace, time.Hour)
	o.Log = cmp.Or(o.Log, slog.Default())
	ending, end := context.WithCancel(context.Background())
	defer end()
	bound := cmp.Or(o.calls, &calls{within: callTime, most: maxCalls})
	o.Connections.Log = cmp.Or(o.Connections.Log, o.Log)
	known := conns.New(listener, o.Connections)
	bound.conns, bound.lost = known, service.opts.Stats.Invalid
	server := grpc.NewServer(append(o.options(bound), service.opts.Access.ServerOptions()...)...)
	pb.RegisterRateLimitServiceServer(server, overGRPC{service})
	checks := checks{health.NewServer()}
	setReady(checks, o.Ready == nil)
	if o.Ready != nil {
		go o.follow(ending, checks)
	}
	healthpb.RegisterHealthServer(server, checks)
	reflection.Register(server)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(known) }()
	go func() {
		select {
		case <-o.Draining:
			checks.Shutdown()
		case <-ending.Done():
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	checks.Shutdown()
	known.Stop()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		server.Stop()
		return err
	}
	end()
	o.finish(server)
	return nil
}

// options returns the bounds of connections and calls, and TLS.
func (o Server) options(bound *calls) []grpc.ServerOption {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	return []grpc.ServerOption{
		grpc.Creds(unread{transport, bound.within}),
		grpc.InTapHandle(bound.enter),
		grpc.ChainUnaryInterceptor(bound.arrived),
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

// checks answers health checks. A stream of health could last as long as its connection, so there is none: clients that ask
// for one take the service for healthy, and learn by GOAWAY that it ends.
type checks struct{ *health.Server }

// Watch is of healthpb.HealthServer.
func (checks) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error {
	return status.Error(codes.Unimplemented, "health is not watched: ask with Check")
}

// readyInterval is how often Ready is asked.
const readyInterval = time.Second

// follow has health follow Ready until the context ends.
func (o Server) follow(ctx context.Context, checks checks) {
	every := time.NewTicker(readyInterval)
	defer every.Stop()
	for {
		setReady(checks, o.Ready(ctx) == nil)
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// setReady changes the health of the names of the service. It has no effect after a Shutdown.
func setReady(checks checks, ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	checks.SetServingStatus(HealthService, status)
	checks.SetServingStatus(pb.RateLimitService_ServiceDesc.ServiceName, status)
}

// finish lets calls in flight finish for graceTimeout.
func (o Server) finish(server *grpc.Server) {
	stopped := make(chan struct{})
	go func() { server.GracefulStop(); close(stopped) }()
	timer := time.NewTimer(graceTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		o.Log.Warn("stopped with gRPC calls in flight")
		server.Stop()
	}
}
