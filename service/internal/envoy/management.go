package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"
)

// Management describes the server that sends the configuration.
type Management struct {
	// Server is its address, and Node the ID of this process for it.
	Server, Node string
	// Headers are sent with each stream.
	Headers map[string]string
	// Retry is the pause before a stream is opened again. Zero is the default of a Source.
	Retry time.Duration
	// MaxMessage is the most bytes of a message from the server. Zero is the default of gRPC, 4 MiB.
	MaxMessage int
	// TLS uses the server's authorities in CA (empty for the system's), this client's certificate (empty for none), all
	// files in PEM, and the name that the server must have (empty for that of its address).
	TLS           bool
	CA, Cert, Key string
	ServerName    string
}

// Source returns the server, with the certificates of its files.
func (m *Management) Source() (*Source, error) {
	s := &Source{Server: m.Server, Node: m.Node, Headers: m.Headers, Retry: m.Retry, MaxMessage: m.MaxMessage}
	if !m.TLS {
		return s, nil
	}
	var err error
	s.TLS, err = m.tls()
	return s, err
}

func (r *reader) management() *Management {
	m := &Management{
		Server:     r.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		Node:       r.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		Retry:      r.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
		MaxMessage: r.bytes("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"),
		TLS:        r.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS"),
		CA:         r.env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
		Cert:       r.env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
		Key:        r.env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
		ServerName: r.env("CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
	}
	if text := r.env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"); text != "" {
		m.Headers = make(map[string]string)
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(pair, ":")
			if !ok {
				r.fail("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: use name:value,name:value")
			}
			m.Headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return m
}

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
