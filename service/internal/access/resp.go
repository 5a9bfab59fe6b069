package access

import "crypto/x509"

// Login returns the caller of a connection that has authenticated with a token, or not at all (""), and may have a
// verified certificate. From is its address, for the log. The error is ErrUnknown; it is counted and logged.
func (g *Gate) Login(token string, cert *x509.Certificate, from any) (*Caller, error) {
	if token == "" {
		return g.identify(nil, cert, from)
	}
	return g.identify([]string{token}, cert, from)
}
