package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// StartTLS starts a server that accepts only TLS, and stops it when the test ends. It also returns the
// configuration for clients, which trusts the certificate of this server and no other.
func StartTLS(t testing.TB, args ...string) (*Server, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	config := &tls.Config{RootCAs: certify(t, certFile, keyFile), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	s := &Server{dir: dir}
	s.config = func() string { // called once the port is chosen
		return "port 0\ntls-port " + strconv.Itoa(s.port) + "\nbind 127.0.0.1\nsave \"\"\ndir " + dir + "\n" +
			"tls-cert-file " + certFile + "\ntls-key-file " + keyFile + "\ntls-ca-cert-file " + certFile + "\ntls-auth-clients no\n"
	}
	s.args = args
	s.dial = func() (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: replyTimeout}, "tcp", s.Addr(), config)
	}
	s.begin(t)
	return s, config
}

// certify writes a self-signed certificate and its key, and returns a pool that trusts it.
func certify(t testing.TB, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{
		certFile: cert, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(cert)
	return trusted
}

// StartUnix is [Start] for a server that also listens on a Unix socket. It returns the path of the socket.
func StartUnix(t testing.TB, args ...string) (s *Server, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sash") //nolint:usetesting // a socket's path has 107 bytes at most; a test's directory can be longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "redis.sock")
	return Start(t, append([]string{"--unixsocket", path}, args...)...), path
}
