package rls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

// sign returns a certificate of a name, signed by an authority, or an authority itself if that is nil.
func sign(t *testing.T, by *tls.Certificate, name string, serial int64) (pair tls.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return pair, certPEM, keyPEM
}

func save(t *testing.T, name string, text []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestMutualTLSAndRenewal(t *testing.T) {
	dir := t.TempDir()
	ca, caPEM, _ := sign(t, nil, "authority", 1)
	now := time.Now()
	save(t, dir+"/ca.pem", caPEM, now)
	_, first, firstKey := sign(t, &ca, "ratelimit.example", 2)
	save(t, dir+"/cert.pem", first, now)
	save(t, dir+"/key.pem", firstKey, now)
	log := &servertest.Log{}
	config, err := access.TLSFiles{Log: slog.New(slog.NewTextHandler(log, nil)),
		Cert: dir + "/cert.pem", Key: dir + "/key.pem", ClientCA: dir + "/ca.pem", ClientSAN: "envoy.example"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	ask := func(name string) (serial int64, err error) {
		clientConfig := &tls.Config{RootCAs: roots, ServerName: "ratelimit.example"}
		if name != "" {
			pair, _, _ := sign(t, &ca, name, 9)
			clientConfig.Certificates = []tls.Certificate{pair}
		}
		here, there := net.Pipe()
		defer func() { _ = here.Close() }()
		go func() {
			server := tls.Server(there, config)
			_, _ = server.Write([]byte{1})
			_ = server.Close()
		}()
		client := tls.Client(here, clientConfig)
		_, err = client.Read(make([]byte, 1)) // a server refuses a client after the client's handshake
		if seen := client.ConnectionState().PeerCertificates; len(seen) > 0 {
			serial = seen[0].SerialNumber.Int64()
		}
		return serial, err
	}
	if serial, err := ask("envoy.example"); err != nil || serial != 2 {
		t.Errorf("certificate %d, %v", serial, err)
	}
	if _, err := ask(""); err == nil {
		t.Error("a client without a certificate is served")
	}
	if _, err := ask("other.example"); err == nil {
		t.Error("a client with another name is served")
	}
	save(t, dir+"/cert.pem", []byte("half a cert"), now.Add(time.Second))
	if serial, err := ask("envoy.example"); err != nil || serial != 2 {
		t.Errorf("while the file is written: certificate %d, %v", serial, err)
	}
	save(t, dir+"/ca.pem", []byte("garbage"), now.Add(time.Second))
	for range 2 {
		if serial, err := ask("envoy.example"); err != nil || serial != 2 {
			t.Errorf("under garbage for authorities: certificate %d, %v", serial, err)
		}
	}
	if said := log.String(); strings.Count(said, "level=ERROR") != 2 || strings.Count(said, "the last valid ones stay in use") != 2 {
		t.Errorf("not a line for each of two changes: %s", said)
	}
	save(t, dir+"/ca.pem", caPEM, now.Add(2*time.Second))
	_, second, secondKey := sign(t, &ca, "ratelimit.example", 3)
	save(t, dir+"/key.pem", secondKey, now.Add(2*time.Second))
	save(t, dir+"/cert.pem", second, now.Add(2*time.Second))
	if serial, err := ask("envoy.example"); err != nil || serial != 3 {
		t.Errorf("renewed: certificate %d, %v", serial, err)
	}
}

func deciderOf(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), text)
}
