package access

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"example.com/sash/service/internal/wire"
)

// ProxyHeader carries a proxy's token to forward-auth, where Authorization belongs to the proxy's client.
const ProxyHeader = "X-Sash-Token"

// Identify returns a request with its caller in the context; header is Authorization or ProxyHeader. The error is
// ErrUnknown; it is counted and logged.
func (g *Gate) Identify(r *http.Request, header string) (*http.Request, error) {
	tokens := r.Header.Values(header)
	if header == "Authorization" {
		tokens = bearers(tokens)
	}
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.VerifiedChains[0][0]
	}
	caller, err := g.identify(tokens, cert, r.RemoteAddr)
	if err != nil {
		return nil, err
	}
	return r.WithContext(With(r.Context(), caller)), nil
}

// Fail answers an error of Identify or Check: 401 or 403.
func Fail(w http.ResponseWriter, err error) {
	code := http.StatusForbidden
	if errors.Is(err, ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sash"`)
		code = http.StatusUnauthorized
	}
	wire.Fail(w, code, err.Error())
}

// bearers returns the tokens of the values of Authorization. One of another scheme is a wrong token.
func bearers(values []string) []string {
	tokens := make([]string, len(values))
	for i, value := range values {
		if scheme, token, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
			tokens[i] = strings.TrimSpace(token)
		}
	}
	return tokens
}

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

// Login returns the caller of a connection that has authenticated with a token, or not at all (""), and may have a
// verified certificate. From is its address, for the log. The error is ErrUnknown; it is counted and logged.
func (g *Gate) Login(token string, cert *x509.Certificate, from any) (*Caller, error) {
	if token == "" {
		return g.identify(nil, cert, from)
	}
	return g.identify([]string{token}, cert, from)
}
