package access

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"example.com/sash/service/internal/certs"
)

// TLSFiles are the files of a port's certificate, in PEM. They are read again when they change, so that
// certificates can be renewed without a restart.
type TLSFiles struct {
	// Cert and Key are the server's certificate chain and key.
	Cert, Key string
	// ClientCA are the authorities of clients. Empty requires no certificate of clients.
	ClientCA string
	// ClientSAN is a DNS name that a client's certificate must have. Empty takes any.
	ClientSAN string
	// Protocols are offered to clients (ALPN). Nil is h2, which is what gRPC wants.
	Protocols []string
	// Log gets files that became wrong, once for each change. Nil is slog.Default.
	Log *slog.Logger
}

// Config reads the files.
func (f TLSFiles) Config() (*tls.Config, error) {
	if f.ClientSAN != "" && f.ClientCA == "" {
		return nil, errors.New("a name for clients needs the authorities that certify them")
	}
	if f.Protocols == nil {
		f.Protocols = []string{"h2"}
	}
	k := &keeper{files: f}
	if err := k.read(); err != nil {
		return nil, err
	}
	base := k.config
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.current(), nil
		},
		// Not used as long as there is GetConfigForClient, but gRPC wants to see a certificate, and Verifies the rest.
		Certificates: base.Certificates,
		ClientAuth:   base.ClientAuth,
	}, nil
}

// Verifies reports whether a port with the configuration verifies certificates of clients. That of nil does not.
func Verifies(config *tls.Config) bool {
	return config != nil && config.ClientAuth == tls.RequireAndVerifyClientCert
}

// A keeper keeps the configuration of the files as they were last read.
type keeper struct {
	files TLSFiles

	mu     sync.Mutex
	config *tls.Config  // guarded by mu
	stamps [3]time.Time // guarded by mu: when the files were changed
	wrong  [3]time.Time // guarded by mu: the stamps of files that were found wrong, and logged
}

// current returns the configuration, after a look at the files. Those that are wrong, as while they are being
// replaced, leave it as it is.
func (k *keeper) current() *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.stamp(); now != k.stamps {
		if err := k.read(); err != nil && now != k.wrong {
			k.wrong = now
			cmp.Or(k.files.Log, slog.Default()).Error("a changed file of TLS is wrong: the last valid ones stay in use", "error", err)
		}
	}
	return k.config
}

func (k *keeper) stamp() (stamps [3]time.Time) {
	for i, name := range []string{k.files.Cert, k.files.Key, k.files.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = info.ModTime()
		}
	}
	return stamps
}

func (k *keeper) read() error {
	stamps := k.stamp()
	pair, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		return fmt.Errorf("reading the server's certificate and key: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: k.files.Protocols, Certificates: []tls.Certificate{pair}}
	if k.files.ClientCA != "" {
		if config.ClientCAs, err = certs.Authorities(k.files.ClientCA); err != nil {
			return fmt.Errorf("reading the authorities of clients: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if name := k.files.ClientSAN; name != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the client has no certificate")
			}
			return state.PeerCertificates[0].VerifyHostname(name)
		}
	}
	k.config, k.stamps = config, stamps
	return nil
}
