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

// ServerOptions identify the caller of each gRPC call but those of health, which anyone may check. Streams, which are
// those of reflection, need the right to decide in some domain; the rate limit service checks each call itself.
func (g *Gate) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, err := g.call(ctx, info.FullMethod)
			if err != nil {
				return nil, Status(err)
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, err := g.call(stream.Context(), info.FullMethod)
			if err == nil && !open(info.FullMethod) {
				err = g.Check(ctx, "", Decide)
			}
			if err != nil {
				return Status(err)
			}
			return next(srv, stream)
		}),
	}
}

// open reports whether anyone may call a method.
func open(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }

// call returns a context with the caller.
func (g *Gate) call(ctx context.Context, method string) (context.Context, error) {
	if open(method) {
		return ctx, nil
	}
	from, cert := any(""), (*x509.Certificate)(nil)
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
		if secured, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(secured.State.VerifiedChains) > 0 {
			cert = secured.State.VerifiedChains[0][0]
		}
	}
	caller, err := g.identify(bearers(metadata.ValueFromIncomingContext(ctx, "authorization")), cert, from)
	if err != nil {
		return nil, err
	}
	return With(ctx, caller), nil
}

// Status returns an error of Check or of a wrong token as a gRPC status: UNAUTHENTICATED or PERMISSION_DENIED.
func Status(err error) error {
	if errors.Is(err, ErrUnknown) {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return status.Error(codes.PermissionDenied, err.Error())
}
