package access

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

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
