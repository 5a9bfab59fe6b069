package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// Certify adds to the configuration of a client the authorities that it trusts, and the certificate and key that it shows.
// An empty ca is that of the system, and an empty cert and key are none.
func Certify(config *tls.Config, ca, cert, key string) (err error) {
	if ca != "" {
		if config.RootCAs, err = authorities(ca); err != nil {
			return err
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("the client's certificate and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}
