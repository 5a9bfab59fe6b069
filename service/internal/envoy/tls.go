package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

func (m *Management) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: m.ServerName}
	if m.CA != "" {
		text, err := os.ReadFile(m.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities of the management server: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", m.CA)
		}
	}
	if m.Cert != "" || m.Key != "" {
		pair, err := tls.LoadX509KeyPair(m.Cert, m.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate for the management server: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
