package redisclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
