package redisclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// tlsFiles are the PEM files of the URL parameters tls_ca, tls_cert and tls_key.
type tlsFiles struct{ ca, cert, key string }

// config adds the files to the TLS configuration of a URL, which is nil without TLS.
func (f tlsFiles) config(base *tls.Config) (*tls.Config, error) {
	if f == (tlsFiles{}) {
		return base, nil
	}
	if base == nil {
		return nil, errors.New("tls_ca, tls_cert and tls_key need TLS: use rediss:// instead of redis://")
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("tls_cert and tls_key must be set together")
	}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("reading tls_ca: %w", err)
		}
		base.RootCAs = x509.NewCertPool()
		if !base.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls_ca: %s has no certificate in PEM", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("reading tls_cert and tls_key: %w", err)
		}
		base.Certificates = []tls.Certificate{pair}
	}
	return base, nil
}

// secure performs the TLS handshake on a connection. The expected server name is that of the configuration, or else that
// of the address. On an error it closes the connection and returns an error of dialling, because nothing was sent.
func secure(ctx context.Context, conn net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	if config.ServerName == "" {
		config = config.Clone()
		if host, _, err := net.SplitHostPort(addr); err == nil {
			config.ServerName = host
		}
	}
	over := tls.Client(conn, config)
	err := over.HandshakeContext(ctx)
	if err == nil {
		return over, nil
	}
	if errors.Is(err, context.DeadlineExceeded) { // of dialing, not of a caller
		err = os.ErrDeadlineExceeded
	}
	_ = conn.Close()
	var wrong *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &wrong):
		err = fmt.Errorf("TLS handshake: %w (set its authority with tls_ca=FILE, and use the host name of the certificate)", err)
	case errors.As(err, &alert):
		err = fmt.Errorf("TLS handshake: %w", err)
	default:
		err = fmt.Errorf("TLS handshake: %w (is it a TLS port? redis:// does not use TLS)", err)
	}
	return nil, &net.OpError{Op: "dial", Net: conn.RemoteAddr().Network(), Addr: conn.RemoteAddr(), Err: err}
}
