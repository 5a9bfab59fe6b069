package xds

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS returns the configuration of a client: ca are the server's authorities, cert and key this client's, all
// files in PEM, and name is what the server must be called. Each may be empty.
func TLS(ca, cert, key, name string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities of the management server: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate for the management server: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
