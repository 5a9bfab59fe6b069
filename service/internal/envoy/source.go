package envoy

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"example.com/sash/service/internal/config"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Source is a management server that sends configurations: ratelimit.config.ratelimit.v3, the state of the world over an
// aggregated discovery stream.
type Source struct {
	// Server is its address, host:port.
	Server string
	// Node is the ID of this process for the server.
	Node string
	// TLS is nil for plain text.
	TLS *tls.Config
	// Headers are sent with each stream.
	Headers map[string]string
	// Retry is the pause before a stream is opened again. Zero is three seconds.
	Retry time.Duration
	// Lost is called with the error that ended a stream. Nil is not called.
	Lost func(error)
}

// Watch calls changed with each configuration that the server sends, or with the error in it, until ctx ends. The server
// receives the error too. Calls do not overlap. Watch returns an error for an unusable address or options; it retries a
// server that is away.
func (s Source) Watch(ctx context.Context, changed func(*config.Config, error)) error {
	creds := insecure.NewCredentials()
	if s.TLS != nil {
		creds = credentials.NewTLS(s.TLS)
	}
	conn, err := grpc.NewClient(s.Server, grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute, Timeout: 20 * time.Second}))
	if err != nil {
		return fmt.Errorf("the management server %s: %w", s.Server, err)
	}
	if s.Retry <= 0 {
		s.Retry = 3 * time.Second
	}
	go func() {
		defer func() { _ = conn.Close() }()
		accepted := "" // the version
		for ctx.Err() == nil {
			err := s.stream(ctx, conn, &accepted, changed)
			if ctx.Err() == nil && s.Lost != nil {
				s.Lost(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(s.Retry):
			}
		}
	}()
	return nil
}

// stream runs one stream to its end.
func (s Source) stream(ctx context.Context, conn *grpc.ClientConn, accepted *string, changed func(*config.Config, error)) error {
	for name, value := range s.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value) //nolint:fatcontext // one a header, a few
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	req := &discovery.DiscoveryRequest{Node: &corev3.Node{Id: s.Node, UserAgentName: "sash"}, TypeUrl: TypeURL, VersionInfo: *accepted}
	for {
		if err := stream.Send(req); err != nil {
			return err
		}
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		if res.GetTypeUrl() != TypeURL {
			return fmt.Errorf("the management server sent %s, which this process did not request", res.GetTypeUrl())
		}
		cfg, err := read(res.GetResources())
		req = &discovery.DiscoveryRequest{Node: req.Node, TypeUrl: TypeURL, ResponseNonce: res.GetNonce()}
		if err != nil {
			req.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		} else {
			*accepted = res.GetVersionInfo()
		}
		req.VersionInfo = *accepted
		changed(cfg, err)
	}
}
