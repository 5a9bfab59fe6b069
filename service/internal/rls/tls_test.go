package rls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

// An authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) sign(t *testing.T, name string, serial int64, ca bool) (certPEM, keyPEM []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), cert, key
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
	caPEM, _, cert, key := (*authority)(nil).sign(t, "authority", 1, true)
	ca := &authority{cert, key}
	now := time.Now()
	save(t, dir+"/ca.pem", caPEM, now)
	first, firstKey, _, _ := ca.sign(t, "ratelimit.example", 2, false)
	save(t, dir+"/cert.pem", first, now)
	save(t, dir+"/key.pem", firstKey, now)
	log := &servertest.Log{}
	config, err := access.TLSFiles{Log: slog.New(slog.NewTextHandler(log, nil)),
		Cert: dir + "/cert.pem", Key: dir + "/key.pem", ClientCA: dir + "/ca.pem", ClientSAN: "envoy.example"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	addr := serveTLS(t, config)

	roots := x509.NewCertPool()
	roots.AddCert(cert)
	ask := func(client string) (int64, error) {
		clientConfig := &tls.Config{RootCAs: roots, ServerName: "ratelimit.example"}
		if client != "" {
			certPEM, keyPEM, _, _ := ca.sign(t, client, 9, false)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			clientConfig.Certificates = []tls.Certificate{pair}
		}
		var serial int64
		clientConfig.VerifyConnection = func(state tls.ConnectionState) error {
			serial = state.PeerCertificates[0].SerialNumber.Int64()
			return nil
		}
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(clientConfig)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("ip=a"))
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
	second, secondKey, _, _ := ca.sign(t, "ratelimit.example", 3, false)
	save(t, dir+"/key.pem", secondKey, now.Add(2*time.Second))
	save(t, dir+"/cert.pem", second, now.Add(2*time.Second))
	if serial, err := ask("envoy.example"); err != nil || serial != 3 {
		t.Errorf("renewed: certificate %d, %v", serial, err)
	}
}

func serveTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	service := New(deciderOf(t), &Options{Log: log})
	go func() { ended <- Server{TLS: config, Log: log}.Serve(ctx, listener, service) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func deciderOf(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), text)
}
