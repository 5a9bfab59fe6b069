package access

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServerOptions check the callers of gRPC streams, which are those of reflection and of health: they need the right to
// decide in some domain, except for health, which anyone may watch. The rate limit service checks its calls itself.
func (g *Gate) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if !strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
				caller, err := g.Call(stream.Context())
				if err == nil {
					err = g.Permit(caller, "", Decide)
				}
				if err != nil {
					return Status(err)
				}
			}
			return next(srv, stream)
		}),
	}
}

// Call returns the sender of a gRPC call. The error is ErrUnknown; it is counted and logged.
func (g *Gate) Call(ctx context.Context) (*Caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		p = &peer.Peer{}
	}
	if !g.listed() {
		return g.identify(nil, nil, p.Addr)
	}
	var cert *x509.Certificate
	if secured, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(secured.State.VerifiedChains) > 0 {
		cert = secured.State.VerifiedChains[0][0]
	}
	return g.identify(bearers(metadata.ValueFromIncomingContext(ctx, "authorization")), cert, p.Addr)
}

// Status returns an error of Check or of a wrong token as a gRPC status: UNAUTHENTICATED or PERMISSION_DENIED.
func Status(err error) error {
	if errors.Is(err, ErrUnknown) {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return status.Error(codes.PermissionDenied, err.Error())
}
