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

// tlsFiles are files in PEM that a URL names with the parameters tls_ca, tls_cert and tls_key.
type tlsFiles struct{ ca, cert, key string }

// config adds the files to the configuration of a URL for TLS; nil is a URL without TLS.
func (f tlsFiles) config(base *tls.Config) (*tls.Config, error) {
	if f == (tlsFiles{}) {
		return base, nil
	}
	if base == nil {
		return nil, errors.New("tls_ca, tls_cert and tls_key are for TLS: write rediss:// in place of redis://")
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("tls_cert and tls_key belong together: give both files")
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

// secure makes a connection one of TLS, with a server of the name that the address has when the configuration has
// none. An error closes it, and says that nothing but the connection failed: it is one of dialling.
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
	_ = conn.Close()
	var wrong *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &wrong):
		err = fmt.Errorf("TLS handshake: %w (name its authority with tls_ca=FILE, and the host as the certificate does)", err)
	case errors.As(err, &alert):
		err = fmt.Errorf("TLS handshake: %w", err)
	default:
		err = fmt.Errorf("TLS handshake: %w (is it a TLS port? redis:// is without TLS)", err)
	}
	return nil, &net.OpError{Op: "dial", Net: conn.RemoteAddr().Network(), Addr: conn.RemoteAddr(), Err: err}
}
