package redisclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

func ping(t testing.TB, url string) error {
	t.Helper()
	client := newClient(t, url)
	defer client.Close()
	err := client.Ping(t.Context())
	if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(client.String(), "secret")) {
		t.Errorf("the password shows: %v: %v", client, err)
	}
	return err
}

func TestUsersAndPasswords(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret/word")
	if err := ping(t, "redis://:secret%2Fword@"+server.Addr()); err != nil {
		t.Error(err)
	}
	if err := ping(t, "redis://:secret2@"+server.Addr()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with another password: %v", err)
	}
	server = redistest.Start(t)
	server.Must(t, "ACL", "SETUSER", "limiter", "on", ">secret", "~sash:*", "-@all", "+ping")
	if err := ping(t, "redis://limiter:secret@"+server.Addr()); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, cert, key := certificates(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = listener.Close()
	redistest.Start(t, "--tls-port", port, "--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "yes")
	const patience = "dial_timeout=20s&read_timeout=20s" // a handshake is many milliseconds of work, and the test is not about them
	trust := "?" + patience + "&tls_ca=" + url.QueryEscape(ca)
	if err := ping(t, "rediss://"+addr+trust+"&tls_cert="+cert+"&tls_key="+key); err != nil {
		t.Errorf("with certificates: %v", err)
	}
	if err := ping(t, "rediss://"+addr+trust); err == nil {
		t.Error("the server took a client without a certificate")
	}
	if err := ping(t, "rediss://"+addr+"?"+patience); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of an unknown authority: %v", err)
	}
}

// A handshake that fails is a connection that could not be made: nothing was sent.
func TestAFailedHandshakeIsOneOfDialling(t *testing.T) {
	server := redistest.Start(t)
	err := ping(t, "rediss://"+server.Addr())
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("%v", err)
	}
}

// certificates writes an authority, and a certificate for 127.0.0.1 with its key.
func certificates(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, own.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	ownDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return write("ca.pem", "CERTIFICATE", authorityDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", ownDER)
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a socket's path may have 107 bytes, and names of tests are long
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "redis.sock")
	redistest.Start(t, "--unixsocket", socket)
	if err := ping(t, "unix://"+socket); err != nil {
		t.Error(err)
	}
}
